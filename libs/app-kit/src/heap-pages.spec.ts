import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { countFits } from './heap-pages.js';

const GIB = 2 ** 30;

/** A line of `/proc/PID/maps`. */
const toLine = (start: number, end: number, name = ''): string =>
  `${start.toString(16)}-${end.toString(16)} rw-p 00000000 00:00 0 ${name}\n`;

describe('countFits', () => {
  it.each([
    { name: 'counts nothing without mappings', mappings: [], bytes: GIB, fits: 0 },
    { name: 'counts a gap of exactly the size', mappings: [[GIB, 2 * GIB]], bytes: GIB, fits: 1 },
    { name: 'skips a smaller gap', mappings: [[GIB - 4096, 2 * GIB]], bytes: GIB, fits: 0 },
    {
      name: 'counts what fits into each gap, not into their sum',
      mappings: [
        [3.5 * GIB, 4 * GIB],
        [4 * GIB, 5 * GIB],
        [6.5 * GIB, 7 * GIB],
      ],
      bytes: GIB,
      fits: 3 + 1,
    },
    {
      name: 'ignores addresses that no process gets',
      mappings: [
        [2 * GIB, 2 ** 47 - GIB],
        [2 ** 64 - 2 ** 24, 2 ** 64 - 2 ** 23],
      ],
      bytes: GIB,
      fits: 2 + 1,
    },
  ])('$name', ({ mappings, bytes, fits }) => {
    const maps = mappings.map(([start = 0, end = 0]) => toLine(start, end)).join('');
    expect(countFits(maps, bytes)).toBe(fits);
  });

  it('keeps 1 GiB free below the stack', () => {
    const maps = toLine(GIB, 2 * GIB) + toLine(5 * GIB, 6 * GIB, '[stack]');
    expect(countFits(maps, GIB)).toBe(1 + 2);
  });
});

/**
 * Runs the program that grows its heap, on the Node.js of this test.
 * @param maxKiB - Limit of its virtual memory.
 */
async function growHeap(
  argument: 'together' | 'apart',
  maxKiB: number | 'unlimited' = 'unlimited',
): Promise<{ result: boolean; regions: number }> {
  const program = fileURLToPath(new URL('testing/heap-pages-child.ts', import.meta.url));
  const limited = 'ulimit -v "$1" && shift && exec "$@"';
  const node = [process.execPath, '--conditions=@cloudless/source', '--import', 'tsx', program];
  const args = ['-c', limited, 'sh', String(maxKiB), ...node, argument];
  const { stdout } = await promisify(execFile)('/bin/sh', args);
  return JSON.parse(stdout) as { result: boolean; regions: number };
}

const isPossible = process.platform === 'linux' && process.arch === 'x64';
const onLinux = isPossible ? it : it.skip;
const canReserve = isPossible && Number.parseInt(process.versions.node, 10) >= 22;
/** A page of V8 has 256 KiB, so 60 MB take more than 200 of them. */
const MANY = 100;
/** One page of 5,000 gets an address that is not reserved. */
const FEW = 5;

describe('keepHeapPagesTogether', () => {
  onLinux('is needed: V8 spreads pages over all addresses', async () => {
    const { regions } = await growHeap('apart');
    expect(regions).toBeGreaterThan(MANY);
  });

  (canReserve ? it : it.skip)('keeps new pages together', async () => {
    const { result, regions } = await growHeap('together');
    expect(result).toBe(true);
    expect(regions).toBeLessThanOrEqual(FEW);
  });

  onLinux('changes nothing when the address space is limited, or with Node.js 20', async () => {
    const { result, regions } = await growHeap('together', canReserve ? 50_000_000 : 'unlimited');
    expect(result).toBe(false);
    expect(regions).toBeGreaterThan(MANY);
  });
});
