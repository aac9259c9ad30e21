import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { endTakeover } from './end-takeover.js';

/** Sockets with a server that waits; `results` are those of the attempts to start the server. */
function setUp(results: readonly (readonly string[])[] = []) {
  const clock = new ManualClock();
  const attempts = [...results];
  const beganMs = clock.now();
  const seen = { startedMs: [] as number[], closedMs: [] as number[], warnings: 0 };
  const sockets = {
    pendingCount: 1,
    passedCount: 0,
    startPending: () => {
      seen.startedMs.push(clock.now() - beganMs);
      const problems = attempts.shift() ?? [];
      if (problems.length === 0) sockets.pendingCount = 0;
      return Promise.resolve(problems);
    },
    closeUnused: () => void seen.closedMs.push(clock.now() - beganMs),
  };
  const log = { ...silentLog, warn: () => void (seen.warnings += 1) };
  const handover = { isRunning: false };
  const isHandingOver = (): boolean => handover.isRunning;
  endTakeover(sockets, { clock, random: createSeededRandom(1), log, isHandingOver });
  return { clock, sockets, seen, handover };
}

describe('the end of a takeover', () => {
  it('replaces sockets after 1 s without clients, and closes unused sockets after 15 s', async () => {
    const { clock, sockets, seen } = setUp();
    sockets.passedCount = 5;
    await clock.advance(1_999);
    expect(seen.startedMs).toEqual([]);
    await clock.advance(1);
    expect(seen.startedMs).toEqual([2_000]);
    await clock.advance(12_999);
    expect(seen.closedMs).toEqual([]);
    await clock.advance(1);
    expect(seen.closedMs).toEqual([15_000]);
    const attempts = seen.startedMs.length;
    await clock.advance(60_000);
    expect([seen.startedMs.length - attempts, seen.closedMs.length]).toEqual([0, 1]);
  });

  it('replaces sockets after 10 minutes while clients connect all the time', async () => {
    const { clock, sockets, seen } = setUp();
    for (let second = 0; second < 599; second += 1) {
      sockets.passedCount += 1;
      await clock.advance(1_000);
    }
    expect(seen.startedMs).toEqual([]);
    sockets.passedCount += 1;
    await clock.advance(1_000);
    expect(seen.startedMs).toEqual([600_000]);
  });

  it('replaces no socket while the process hands its sockets to a successor', async () => {
    const { clock, seen, handover } = setUp();
    handover.isRunning = true;
    await clock.advance(14_000);
    expect(seen.startedMs).toEqual([]);
    handover.isRunning = false;
    await clock.advance(1_000);
    expect(seen.startedMs).toHaveLength(1);
  });

  it('tries again, soon and with one warning, while a port is not free', async () => {
    const { clock, seen } = setUp([
      ['10.0.0.1 port 80: EADDRINUSE'],
      ['10.0.0.1 port 80: EADDRINUSE'],
    ]);
    await clock.advance(1_200);
    expect(seen.startedMs).toHaveLength(3);
    expect(seen.startedMs[2]).toBeLessThan(1_100);
    expect(seen.warnings).toBe(1);
  });
});
