import { ManualClock } from '@cloudless/base/testing';
import { SimLink, SimPipe } from './sim-link.js';
import { SimRandom } from './sim-random.js';

describe('SimPipe', () => {
  it('lets every stream that waits go on once more may be sent', async () => {
    const clock = new ManualClock();
    const pipe = new SimPipe(new SimLink('a link', clock, new SimRandom(1)), 'down', clock);
    while (pipe.canSend(() => undefined)) pipe.send(() => undefined);
    const resumed: string[] = [];
    for (const stream of ['first', 'second'])
      expect(pipe.canSend(() => resumed.push(stream))).toBe(false);
    await clock.advance(1_000);
    expect(resumed).toEqual(['first', 'second']);
  });
});
