import { StoppedError } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { waitForPorts } from './wait-for-ports.js';

const endpoints = [
  { portName: 'http', ip: '127.0.0.1', port: 80 },
  { portName: 'admin', ip: '127.0.0.1', port: 81 },
];

describe('waitForPorts', () => {
  let clock: ManualClock;
  let open: Set<number>;
  let attempts: number[];
  let isDone: boolean;
  const connect = async (_ip: string, port: number): Promise<boolean> => {
    attempts.push(port);
    return open.has(port);
  };
  const wait = (signal = new AbortController().signal): Promise<void> =>
    waitForPorts(endpoints, { clock, connect }, signal).then(() => void (isDone = true));

  beforeEach(() => {
    clock = new ManualClock();
    open = new Set();
    attempts = [];
    isDone = false;
  });

  it('resolves only once every port has accepted a connection', async () => {
    open.add(80);
    const waiting = wait();
    await settle();
    expect(isDone).toBe(false);
    await clock.advance(1_000);
    expect(isDone).toBe(false);
    open.add(81);
    await clock.advance(250);
    await waiting;
    expect(isDone).toBe(true);
  });

  it('does not connect again to a port that has accepted a connection', async () => {
    open.add(80);
    const waiting = wait();
    await clock.advance(1_000);
    expect(attempts.filter((port) => port === 80)).toHaveLength(1);
    expect(attempts.filter((port) => port === 81).length).toBeGreaterThan(3);
    open.add(81);
    await clock.advance(250);
    await waiting;
  });

  it('rejects with StoppedError when it is aborted, and leaves no timer', async () => {
    const stop = new AbortController();
    const outcome = expect(wait(stop.signal)).rejects.toThrow(StoppedError);
    await settle();
    stop.abort();
    await outcome;
    expect(clock.pendingTimers).toBe(0);
  });
});
