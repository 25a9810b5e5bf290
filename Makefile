all:
