"""Keep the bytes of a root: in folders on a disk, or as objects in a bucket.

    storage           the seam: read, list, put if absent, replace if unchanged, upload, delete
    local             a folder: link, rename and fsync
    access            how a bucket is reached: environment, profile, settings
    durable_files     fsync of files and folders, for those who write to a folder themselves

Names and bytes come in; what is in place when a call returns survives a power cut. `tables` and
the copies of a root call it; it knows neither tables nor Delta.

The log, the settings of security and the JSON tier call it too. Whoever writes a small file here
replaces it as a whole: nothing that is read at a start is ever written in place.
"""
