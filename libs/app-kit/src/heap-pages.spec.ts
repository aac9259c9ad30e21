import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { countFits } from './heap-pages.js';

const GIB = 2 ** 30;

/** A line of `/proc/PID/maps`. */
const toLine = (start: number, end: number): string =>
  `${start.toString(16)}-${end.toString(16)} rw-p 00000000 00:00 0 `;

describe('countFits', () => {
  it.each([
    { name: 'counts nothing without mappings', mappings: [], bytes: GIB, fits: 0 },
    { name: 'counts a gap of just the size', mappings: [[GIB, 2 * GIB]], bytes: GIB, fits: 1 },
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
    const maps = mappings.map(([start = 0, end = 0]) => `${toLine(start, end)}\n`).join('');
    expect(countFits(maps, bytes)).toBe(fits);
  });
});

/** Runs the program that grows its heap, on the Node.js of this test. */
async function growHeap(argument: string): Promise<{ result: boolean; regions: number }> {
  const program = fileURLToPath(new URL('testing/heap-pages-child.ts', import.meta.url));
  const node = ['--conditions=@cloudless/source', '--import', 'tsx', program, argument];
  const { stdout } = await promisify(execFile)(process.execPath, node);
  return JSON.parse(stdout) as { result: boolean; regions: number };
}

const onLinux = process.platform === 'linux' && process.arch === 'x64' ? it : it.skip;
const canReserve = Number.parseInt(process.versions.node, 10) >= 22;
/** A page of V8 has 256 KiB, so 60 MB take more than 200 of them. */
const MANY = 100;
/** One page of 5,000 gets an address that is not reserved. */
const FEW = 5;

describe('keepHeapPagesTogether', () => {
  onLinux('has a reason: V8 spreads pages over all addresses', async () => {
    const { regions } = await growHeap('apart');
    expect(regions).toBeGreaterThan(MANY);
  });

  onLinux('keeps new pages together, or returns false with Node.js 20', async () => {
    const { result, regions } = await growHeap('together');
    expect(result).toBe(canReserve);
    if (canReserve) expect(regions).toBeLessThanOrEqual(FEW);
    else expect(regions).toBeGreaterThan(MANY);
  });

  onLinux('returns false when the address space is limited', async () => {
    const program = fileURLToPath(new URL('testing/heap-pages-child.ts', import.meta.url));
    const { stdout } = await promisify(execFile)('/bin/sh', [
      '-c',
      'ulimit -v 50000000 && exec "$0" --conditions=@cloudless/source --import tsx "$1" together',
      process.execPath,
      program,
    ]);
    expect(JSON.parse(stdout)).toMatchObject({ result: false });
  });
});
