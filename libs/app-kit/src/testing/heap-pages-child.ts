/**
 * A program whose heap grows by some 60 MB, after a call of `keepHeapPagesTogether` if its argument
 * is `together`. Prints what the call returned, and over how many GiB of addresses the new pages
 * are spread, as JSON.
 */
import { readFileSync } from 'node:fs';
import { keepHeapPagesTogether } from '../heap-pages.js';

/** Returns the GiB of addresses in which this process has memory of its own that it may write. */
function listRegions(): Set<number> {
  const maps = readFileSync('/proc/self/maps', 'latin1');
  const own = maps.matchAll(/^([\da-f]+)-[\da-f]+ rw-p 0+ 00:00 0 *$/gm);
  return new Set(
    Array.from(own, ([, start]) => Math.floor(Number.parseInt(start ?? '', 16) / 2 ** 30)),
  );
}

const result = process.argv[2] === 'together' && keepHeapPagesTogether();
const before = listRegions();
const objects = Array.from({ length: 500_000 }, (_, index) => ({ index, next: { index } }));
const regions = [...listRegions()].filter((region) => !before.has(region)).length;
process.stdout.write(JSON.stringify({ result, regions, objects: objects.length }));
