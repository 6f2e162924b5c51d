"""Headers of image files: from the first bytes to size, orientation and the reasons for encoding anew.

One parser a format, each a plain function from bytes to `Header`. They answer what Pillow would answer (vLLM opens
pictures with Pillow), and are tested against it. Own parsers for the formats that clients send all day: a JPEG from the
first kilobyte of its base64 takes a few microseconds, where Pillow needs the whole file and a hundred times that.
"""
