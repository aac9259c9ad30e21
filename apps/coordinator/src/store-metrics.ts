import { readdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Meter } from '@cloudless/base';

/**
 * Registers the used and the free disk space of the store. The gauges are set at each scrape.
 * @param directory - The data directory.
 */
export function registerStoreMetrics(meter: Meter, directory: string): void {
  const size = meter.gauge({
    name: 'cloudless_store_size_bytes',
    help: 'Disk space used by the files of the state store.',
  });
  const free = meter.gauge({
    name: 'cloudless_store_disk_free_bytes',
    help: 'Free space on the disk of the state store, for users without privileges.',
  });
  const total = meter.gauge({
    name: 'cloudless_store_disk_size_bytes',
    help: 'Size of the disk of the state store.',
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

/** Unit of `blocks` in `stat`, on all systems that Node supports. */
const BLOCK_BYTES = 512;
