import { createSeededRandom } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { silentTestLog } from '../testing/silent-test-log.js';
import { VirtualRange } from './virtual-range.js';

describe('the range of virtual addresses', () => {
  const begin = () => {
    const clock = new ManualClock();
    const prepared: string[] = [];
    const state = { failure: undefined as string | undefined, ready: 0 };
    const range = new VirtualRange({
      ...{ clock, random: createSeededRandom(1), log: silentTestLog },
      prepare: async (cidr) => {
        prepared.push(cidr);
        if (state.failure !== undefined) throw new Error(state.failure);
      },
      onReady: () => void (state.ready += 1),
    });
    return { clock, prepared, state, range };
  };

  it('is tried again after a failure until it is reachable', async () => {
    const { clock, prepared, state, range } = begin();
    state.failure = 'no route';
    range.serve('10.96.0.0/16');
    await clock.advance(5_000);
    expect(prepared.length).toBeGreaterThan(2);
    expect(range.problem).toBe('virtual addresses of 10.96.0.0/16 are not served: no route');
    state.failure = undefined;
    await clock.advance(30_000);
    expect([state.ready > 0, range.problem]).toEqual([true, undefined]);
  });

  it('is prepared again every 30 s, because its route may have been removed', async () => {
    const { clock, prepared, range } = begin();
    range.serve('10.96.0.0/16');
    range.serve('10.96.0.0/16');
    await clock.advance(95_000);
    expect(prepared).toHaveLength(4);
  });

  it('is left alone after its end and after another range', async () => {
    const { clock, prepared, range } = begin();
    range.serve('10.96.0.0/16');
    range.serve('10.97.0.0/16');
    await clock.advance(40_000);
    expect(prepared).toEqual(['10.96.0.0/16', '10.97.0.0/16', '10.97.0.0/16']);
    range.close();
    await clock.advance(100_000);
    expect(prepared).toHaveLength(3);
  });
});
