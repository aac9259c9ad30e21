import { readdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Meter } from '@cloudless/base';

/** Registers how much room the store takes and has; read when it is scraped. */
export function registerStoreMetrics(meter: Meter, directory: string): void {
  const size = meter.gauge({
    name: 'cloudless_store_size_bytes',
    help: 'Disk space that the files of the state store take.',
  });
  const free = meter.gauge({
    name: 'cloudless_store_disk_free_bytes',
    help: 'Free space of the disk under the state store, for users without privileges.',
  });
  const total = meter.gauge({
    name: 'cloudless_store_disk_size_bytes',
    help: 'Size of the disk under the state store.',
  });
  meter.onExpose(async () => {
    const disk = await statfs(directory);
    free.set(disk.bavail * disk.bsize);
    total.set(disk.blocks * disk.bsize);
    const names = await readdir(directory);
    const files = await Promise.all(names.map((name) => stat(join(directory, name))));
    size.set(files.reduce((sum, file) => sum + (file.isFile() ? file.blocks * BLOCK_BYTES : 0), 0));
  });
}

/** What `stat` counts in, on every system that Node runs on. */
const BLOCK_BYTES = 512;
