"""`python -m holdfast`, the same as `holdfast`."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
