import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

const CHUNK = Buffer.alloc(1024 * 1024);

/** A file system in memory with a size limit, that can be filled. Needs root. */
export class SmallDisk {
  private constructor(readonly directory: string) {}

  /** Mounts the file system. The caller must unmount it. */
  static mount(directory: string, sizeMiB: number): SmallDisk {
    mkdirSync(directory);
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeMiB}m`, 'chaos', directory]);
    return new SmallDisk(directory);
  }

  /** Writes a file until nothing more fits. */
  fill(): void {
    const file = openSync(this.filler, 'w');
    try {
      for (;;) writeSync(file, CHUNK);
    } catch (reason) {
      if ((reason as { readonly code?: unknown }).code !== 'ENOSPC') throw reason;
    } finally {
      closeSync(file);
    }
  }

  /** Removes the file of {@link SmallDisk.fill}. */
  free(): void {
    rmSync(this.filler, { force: true });
  }

  unmount(): void {
    execFileSync('umount', ['--lazy', this.directory]);
  }

  private get filler(): string {
    return join(this.directory, 'filler');
  }
}
