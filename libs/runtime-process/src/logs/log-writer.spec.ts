import { appendFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { flattenBatches } from '@cloudless/runtime';
import { listLogFiles } from './log-files.js';
import { readLog } from './log-reader.js';
import { LogWriter } from './log-writer.js';

let directory: string;
beforeEach(() => (directory = mkdtempSync(path.join(tmpdir(), 'cloudless-log-'))));
afterEach(() => rmSync(directory, { recursive: true }));

const aWriter = (log: string, fileBytes = 200): LogWriter =>
  new LogWriter({ directory: log, clock: new ManualClock(), log: silentLog, files: 3, fileBytes });

async function read(
  log: string,
): Promise<readonly { readonly text: string; readonly sequence: bigint }[]> {
  const lines = [];
  const request = { follow: false };
  const options = {
    directory: log,
    request,
    signal: new AbortController().signal,
    waitUntilDrained: () => Promise.resolve(),
  };
  for await (const { text, sequence } of flattenBatches(readLog(options)))
    lines.push({ text: Buffer.from(text).toString('latin1'), sequence });
  return lines;
}

describe('LogWriter', () => {
  it('loses and repeats no line when it is replaced at any moment, even within a line', async () => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.stringMatching(/^[ab\n]{0,30}$/), fc.boolean()), { maxLength: 12 }),
        async (chunks) => {
          const log = path.join(directory, String((run += 1)));
          let writer = aWriter(log, 100_000);
          for (const [text, isReplaced] of chunks) {
            writer.append('stdout', Buffer.from(text));
            if (isReplaced) {
              writer.close();
              writer = aWriter(log, 100_000);
            }
          }
          writer.finish();
          const whole = chunks.map(([text]) => text).join('');
          const expected = whole.split('\n');
          if (expected.at(-1) === '') expected.pop();
          expect(await read(log)).toEqual(
            expected.map((text, index) => ({ text, sequence: BigInt(index + 1) })),
          );
        },
      ),
      { numRuns: 60 },
    );
  });

  it('keeps at most the configured number of files, with unbroken sequence numbers', async () => {
    const writer = aWriter(directory);
    for (let line = 1; line <= 100; line += 1)
      writer.append('stdout', Buffer.from(`line ${line}\n`));
    writer.finish();
    expect(listLogFiles(directory)).toHaveLength(3);
    const lines = await read(directory);
    expect(lines.at(-1)).toEqual({ text: 'line 100', sequence: 100n });
    expect(lines.map(({ sequence }) => sequence)).toEqual(
      lines.map((_, index) => (lines[0]?.sequence ?? 0n) + BigInt(index)),
    );
  });

  it('truncates an incomplete record at the end of the file', async () => {
    const first = aWriter(directory);
    first.append('stdout', Buffer.from('one\n'));
    first.close();
    appendFileSync(listLogFiles(directory)[0]?.file ?? '', '2 17672256');
    const second = aWriter(directory);
    second.append('stderr', Buffer.from('two\n'));
    second.finish();
    expect((await read(directory)).map(({ text }) => text)).toEqual(['one', 'two']);
    expect(readdirSync(directory).filter((name) => name.endsWith('.log'))).toHaveLength(1);
  });
});
