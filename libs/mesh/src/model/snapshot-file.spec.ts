import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ManualClock } from '@cloudless/base/testing';
import { silentTestLog } from '../testing/silent-test-log.js';
import { SnapshotFile } from './snapshot-file.js';

describe('the file of a snapshot', () => {
  let directory: string;
  beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'snapshot-'))));
  afterEach(() => rmSync(directory, { recursive: true }));

  const begin = () => {
    const clock = new ManualClock();
    const state = { content: '', encodings: 0 };
    const path = join(directory, 'snapshot');
    const encode = (): Uint8Array => ((state.encodings += 1), Buffer.from(state.content));
    return { clock, state, path, file: new SnapshotFile(path, encode, clock, silentTestLog) };
  };

  it('has the newest content when a write begins while another is under way', async () => {
    const { clock, state, path, file } = begin();
    for (const content of ['long'.repeat(1_000_000), 'short']) {
      state.content = content;
      file.schedule();
      // Without a turn of the event loop: no write ends meanwhile.
      void clock.advance(10_000);
    }
    await file.close();
    expect(readFileSync(path, 'utf8')).toBe('short');
    expect(readdirSync(directory)).toEqual(['snapshot']);
  });

  it('is left to the next process after a stop', async () => {
    const { clock, state, file } = begin();
    file.schedule();
    file.stop();
    file.schedule();
    await clock.advance(60_000);
    await file.close();
    expect(state.encodings).toBe(0);
  });
});
