// SPDX-FileCopyrightText: 2026 The jax_dynemb authors
// SPDX-License-Identifier: Apache-2.0

// tests/stores/faults.c: a preloaded library that lets the file system fail, or the process die, at
// a chosen call that changes a file below one directory.
//
// A death may also be a power failure: then files keep only what was synced, new names that no sync
// of their directory has secured are gone, and old ones are back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum Mode { kNothing, kKill, kPower, kNoSpace, kSlow };
enum { kMost = 4096 };

static char root[PATH_MAX];
static enum Mode mode = kNothing;
static long countdown = 0, calls = 0;

struct Written {  // a file and how much of it is on the disk
  char path[PATH_MAX];
  off_t synced;
};
struct Named {  // a name that a power failure takes back
  char path[PATH_MAX], backup[PATH_MAX];
};
static struct Written written[kMost];
static struct Named named[kMost];
static int num_written = 0, num_named = 0;

void faults_arm(char const* directory, int what, long call) {
  snprintf(root, sizeof root, "%s", directory);
  mode = (enum Mode)what;
  countdown = call;
  calls = 0;
  num_written = num_named = 0;
}

long faults_calls(void) { return calls; }

static int is_ours(char const* path) {
  return mode != kNothing && root[0] != '\0' && strncmp(path, root, strlen(root)) == 0;
}

static int path_of(int fd, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t const size = readlink(link, path, PATH_MAX - 1);
  if (size < 0) return 0;
  path[size] = '\0';
  return is_ours(path);
}

static struct Written* written_at(char const* path) {
  for (int i = 0; i < num_written; ++i) {
    if (strcmp(written[i].path, path) == 0) return &written[i];
  }
  if (num_written == kMost) abort();
  struct Written* const file = &written[num_written++];
  snprintf(file->path, PATH_MAX, "%s", path);
  file->synced = 0;
  return file;
}

static void lose_power(void) {
  int (*const real_rename)(char const*, char const*) = dlsym(RTLD_NEXT, "rename");
  for (int i = 0; i < num_written; ++i) {
    struct stat status;
    if (stat(written[i].path, &status) == 0 && status.st_size > written[i].synced) {
      if (truncate(written[i].path, written[i].synced) != 0) abort();
    }
  }
  for (int i = num_named - 1; i >= 0; --i) {
    if (named[i].backup[0] != '\0') {
      real_rename(named[i].backup, named[i].path);
    } else {
      unlink(named[i].path);
    }
  }
}

// Returns whether the call shall fail; does not return where the process shall die.
static int is_due(void) {
  ++calls;
  if (mode == kSlow) {
    struct timespec const some = {0, 2000000};
    nanosleep(&some, NULL);
    return 0;
  }
  return calls == countdown;
}

static void die(void) {
  if (mode == kPower) lose_power();
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

typedef ssize_t (*Write)(int, void const*, size_t);
typedef ssize_t (*WriteAt)(int, void const*, size_t, off_t);

ssize_t pwrite64(int fd, void const* data, size_t size, off_t offset) {
  WriteAt const real = (WriteAt)dlsym(RTLD_NEXT, "pwrite64");
  char path[PATH_MAX];
  if (path_of(fd, path)) {
    written_at(path);
    if (is_due()) {
      if (size > 1) real(fd, data, size / 2, offset);  // torn
      if (mode != kNoSpace) die();
      errno = ENOSPC;
      return -1;
    }
  }
  return real(fd, data, size, offset);
}

ssize_t pwrite(int fd, void const* data, size_t size, off_t offset) {
  return pwrite64(fd, data, size, offset);
}

ssize_t write(int fd, void const* data, size_t size) {
  Write const real = (Write)dlsym(RTLD_NEXT, "write");
  char path[PATH_MAX];
  if (path_of(fd, path)) {
    written_at(path);
    if (is_due()) {
      if (size > 1) real(fd, data, size / 2);
      if (mode != kNoSpace) die();
      errno = ENOSPC;
      return -1;
    }
  }
  return real(fd, data, size);
}

int fsync(int fd) {
  int (*const real)(int) = dlsym(RTLD_NEXT, "fsync");
  char path[PATH_MAX];
  if (path_of(fd, path)) {
    if (is_due()) {
      if (mode != kNoSpace) die();
      errno = ENOSPC;
      return -1;
    }
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) written_at(path)->synced = status.st_size;
    if (S_ISDIR(status.st_mode)) {  // the names in it are secured
      size_t const length = strlen(path);
      for (int i = 0; i < num_named; ++i) {
        if (strncmp(named[i].path, path, length) == 0 && named[i].path[length] == '/') {
          named[i].path[0] = '\0';
          if (named[i].backup[0] != '\0') unlink(named[i].backup);
          named[i].backup[0] = '\0';
        }
      }
    }
    return 0;  // quick; the model above says what it would have secured
  }
  return real(fd);
}

static void remember(char const* path, int is_new) {
  if (mode != kPower) return;
  if (num_named == kMost) abort();
  struct Named* const name = &named[num_named++];
  snprintf(name->path, PATH_MAX, "%s", path);
  name->backup[0] = '\0';
  if (!is_new) {
    snprintf(name->backup, PATH_MAX, "%.4000s.power-%d", path, num_named);
    if (link(path, name->backup) != 0) abort();
  }
}

int rename(char const* from, char const* to) {
  int (*const real)(char const*, char const*) = dlsym(RTLD_NEXT, "rename");
  if (is_ours(to)) {
    if (is_due()) {
      if (mode != kNoSpace) die();
      errno = ENOSPC;
      return -1;
    }
    struct stat status;
    remember(to, stat(to, &status) != 0);
    struct Written* const source = written_at(from);
    off_t const synced = source->synced;
    source->path[0] = '\0';
    written_at(to)->synced = synced;
  }
  return real(from, to);
}

int unlink(char const* path) {
  int (*const real)(char const*) = dlsym(RTLD_NEXT, "unlink");
  if (is_ours(path) && strstr(path, ".power-") == NULL) {
    struct stat status;
    if (stat(path, &status) == 0) {
      if (is_due() && mode != kNoSpace) die();
      if (mode == kPower) {  // it may come back, and its bytes with it
        remember(path, 0);
      }
    }
  }
  return real(path);
}

static int opened(char const* path, int flags, mode_t bits) {
  int (*const real)(char const*, int, ...) = dlsym(RTLD_NEXT, "open64");
  if (is_ours(path) && (flags & O_CREAT) != 0) {
    struct stat status;
    if (stat(path, &status) != 0) {
      if (is_due()) {
        if (mode != kNoSpace) die();
        errno = ENOSPC;
        return -1;
      }
      remember(path, 1);
    }
  }
  return real(path, flags, bits);
}

int open(char const* path, int flags, ...) {
  __builtin_va_list list;
  __builtin_va_start(list, flags);
  mode_t const bits = (flags & O_CREAT) != 0 ? (mode_t)__builtin_va_arg(list, int) : 0;
  __builtin_va_end(list);
  return opened(path, flags, bits);
}

int open64(char const* path, int flags, ...) {
  __builtin_va_list list;
  __builtin_va_start(list, flags);
  mode_t const bits = (flags & O_CREAT) != 0 ? (mode_t)__builtin_va_arg(list, int) : 0;
  __builtin_va_end(list);
  return opened(path, flags, bits);
}
