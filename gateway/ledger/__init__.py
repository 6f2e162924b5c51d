"""Where holdings live and requests wait for them: the shells around domain/holdings.py and domain/admission.py."""
