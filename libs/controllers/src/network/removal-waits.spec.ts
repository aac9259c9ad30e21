import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { RemovalWaits } from './removal-waits.js';

class TestReader {
  applied = 0n;
  constructor(readonly nodeId: string) {}
}

describe('RemovalWaits', () => {
  let clock: ManualClock;
  let gone: string[];
  let warned: unknown[];
  let waits: RemovalWaits;
  beforeEach(() => {
    clock = new ManualClock();
    [gone, warned] = [[], []];
    const log = {
      ...silentLog,
      warn: (_message: string, fields?: { readonly nodeId?: unknown }) =>
        void warned.push(fields?.nodeId),
    };
    waits = new RemovalWaits({ clock, log, onGone: (ids) => gone.push(...ids) });
  });

  const open = (nodeId: string): TestReader => {
    const reader = new TestReader(nodeId);
    waits.open(reader);
    return reader;
  };
  const acknowledge = (reader: TestReader, revision: bigint): void => {
    reader.applied = revision;
    waits.acknowledge(reader, revision, revision);
  };

  it('waits once for a proxy that applies nothing, and names its node', async () => {
    const [good, hung] = [open('good'), open('hung')];
    waits.begin(['a'], 5n);
    acknowledge(good, 5n);
    await clock.advance(2_999);
    expect([gone, warned]).toEqual([[], []]);
    await clock.advance(1);
    expect([gone, warned]).toEqual([['a'], ['hung']]);
    waits.begin(['b'], 6n);
    acknowledge(good, 6n);
    expect(gone).toEqual(['a', 'b']);
    waits.close(hung);
    open('hung');
    waits.begin(['c'], 7n);
    acknowledge(good, 7n);
    await clock.advance(10_000);
    expect([gone, warned]).toEqual([['a', 'b', 'c'], ['hung']]);
  });

  it('waits again for a proxy that has caught up', async () => {
    const slow = open('slow');
    waits.begin(['a'], 5n);
    await clock.advance(3_000);
    acknowledge(slow, 5n);
    waits.begin(['b'], 6n);
    expect(gone).toEqual(['a']);
    acknowledge(slow, 6n);
    expect(gone).toEqual(['a', 'b']);
  });

  it('waits for proxies that have not connected to a new feed yet, for 5 s', async () => {
    waits.expect(['one', 'two', 'away']);
    const one = open('one');
    waits.begin(['a'], 5n);
    acknowledge(one, 5n);
    await clock.advance(1_000);
    const two = open('two');
    expect(gone).toEqual([]);
    acknowledge(two, 5n);
    await clock.advance(3_999);
    expect(gone).toEqual([]);
    await clock.advance(1);
    expect(gone).toEqual(['a']);
    waits.begin(['b'], 6n);
    acknowledge(one, 6n);
    acknowledge(two, 6n);
    expect(gone).toEqual(['a', 'b']);
  });
});
