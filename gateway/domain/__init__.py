"""Pure decisions and the values they are made of: standard library only, `now` is an argument, nothing waits."""
