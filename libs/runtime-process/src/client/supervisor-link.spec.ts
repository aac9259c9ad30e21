import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError, createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { PROTOCOL } from '../wire/messages.js';
import {
  SILENT_AFTER_MS,
  SupervisorLink,
  type AttemptListener,
  type LinkedConnection,
} from './supervisor-link.js';
import { MONITOR_INTERVAL_MS, SupervisorMonitor } from './supervisor-monitor.js';

/** A connection of a supervisor that a test ends. */
interface FakeConnection extends LinkedConnection {
  isOpen: boolean;
}

/** One attempt of the link to connect, which the test continues. */
class FakeAttempt {
  readonly result: Promise<FakeConnection>;
  private resolve: (connection: FakeConnection) => void = () => undefined;
  private reject: (reason: unknown) => void = () => undefined;

  constructor(
    private readonly listener: AttemptListener<FakeConnection>,
    signal: AbortSignal,
  ) {
    this.result = new Promise((resolve, reject) => {
      [this.resolve, this.reject] = [resolve, reject];
    });
    signal.addEventListener('abort', () => this.reject(new Error('closed')), { once: true });
  }

  accept(): void {
    this.listener.onAccepted();
  }

  /** Sends the hello. The first request of the attempt is not answered yet. */
  greet(pid: number): FakeConnection {
    const connection: FakeConnection = {
      hello: { type: 'hello', protocol: PROTOCOL, version: '1', pid },
      isOpen: true,
      close: () => (connection.isOpen = false),
    };
    this.listener.onAnswered(connection);
    return connection;
  }

  answer(pid: number): FakeConnection {
    const connection = this.greet(pid);
    this.resolve(connection);
    return connection;
  }

  /** Closes the socket: a supervisor that is not connected cannot be reached then. */
  close(): void {
    this.listener.onClosed();
  }

  fail(reason: unknown = new CloudlessError('unavailable', 'no supervisor')): void {
    this.reject(reason);
  }
}

let clock: ManualClock;
let attempts: FakeAttempt[];
let lost: number;
let link: SupervisorLink<FakeConnection>;
/** Process that holds the lock of the directory. */
let lockHolder: number | undefined;
/** Called with each new attempt. */
let onAttempt: (attempt: FakeAttempt) => void | Promise<void>;
beforeEach(() => {
  clock = new ManualClock();
  attempts = [];
  lost = 0;
  lockHolder = 41;
  onAttempt = () => undefined;
  link = new SupervisorLink<FakeConnection>({
    connect: (listener, signal) => {
      const attempt = new FakeAttempt(listener, signal);
      attempts.push(attempt);
      void onAttempt(attempt);
      return attempt.result;
    },
    onLost: () => (lost += 1),
    findSupervisor: () => lockHolder,
    clock,
    random: createSeededRandom(3),
    log: silentLog,
  });
});
afterEach(async () => {
  await link.close();
  await settle();
  expect(clock.pendingTimers).toBe(0);
});

/** Connects, and returns the attempt and the connection. */
async function connect(pid = 17): Promise<[FakeAttempt, FakeConnection]> {
  const connecting = link.getConnection();
  const attempt = attempts.at(-1);
  if (attempt === undefined) throw new Error('no attempt');
  attempt.accept();
  const connection = attempt.answer(pid);
  await connecting;
  return [attempt, connection];
}

describe('SupervisorLink', () => {
  it('shares one attempt among concurrent callers and reports the connected supervisor', async () => {
    const callers = [link.getConnection(), link.getConnection()];
    attempts[0]?.accept();
    const connection = attempts[0]?.answer(17);
    expect(await Promise.all(callers)).toEqual([connection, connection]);
    expect([attempts.length, link.supervisorPid, link.hasEverAnswered]).toEqual([1, 17, true]);
  });

  it('reports a supervisor that accepts the connection and is silent, with its process id, until it answers', async () => {
    const connecting = link.waitForConnection();
    let isSilent = false;
    void link.waitForSilence().then(() => (isSilent = true));
    await clock.advance(60_000); // a new supervisor is being started
    expect(isSilent).toBe(false);
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS - 1);
    expect([isSilent, link.supervisorPid]).toEqual([false, undefined]);
    await clock.advance(1);
    expect([isSilent, link.isSilent, link.supervisorPid]).toEqual([true, true, 41]);
    await expect(link.getConnection()).rejects.toMatchObject({
      kind: 'unavailable',
      message:
        'the supervisor of the processes (process 41) has not answered for 5 s; if the supervisor stays silent, run kill -9 41 on the machine: another supervisor is started, and the processes keep running',
    });
    attempts[0]?.answer(17);
    await connecting;
    expect([link.isSilent, link.supervisorPid]).toEqual([false, 17]);
    expect(await link.getConnection()).toMatchObject({ isOpen: true });
    expect(attempts).toHaveLength(1);
  });

  it('fails callers that wait as soon as the supervisor is silent', async () => {
    const failure = expect(link.getConnection()).rejects.toThrow('run kill -9 41 on the machine');
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS);
    await failure;
  });

  it('ends the silence with the hello, and counts the silence after the hello', async () => {
    const failure = expect(link.getConnection()).rejects.toThrow('run kill -9 41 on the machine');
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS);
    await failure;
    attempts[0]?.greet(17);
    expect([link.isSilent, link.supervisorPid]).toEqual([false, 17]);
    const secondFailure = expect(link.getConnection()).rejects.toMatchObject({
      kind: 'unavailable',
    });
    await clock.advance(SILENT_AFTER_MS - 1);
    expect(link.isSilent).toBe(false);
    await clock.advance(1);
    await secondFailure;
    expect(link.isSilent).toBe(true);
  });

  it('counts the silence of the next supervisor from its own start', async () => {
    const connecting = link.waitForConnection();
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS);
    attempts[0]?.close(); // the silent supervisor was killed
    expect(link.isSilent).toBe(false);
    await clock.advance(20_000); // the attempt starts another supervisor
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS - 1);
    expect(link.isSilent).toBe(false);
    attempts[0]?.answer(18);
    await connecting;
    expect(link.supervisorPid).toBe(18);
  });

  it('names the process id of each supervisor that is silent, and none in between', async () => {
    const connecting = link.waitForConnection();
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS);
    expect(link.supervisorPid).toBe(41);
    attempts[0]?.close(); // the silent supervisor was killed
    expect(link.supervisorPid).toBeUndefined();
    lockHolder = 42;
    attempts[0]?.accept();
    await clock.advance(SILENT_AFTER_MS);
    expect(link.supervisorPid).toBe(42);
    attempts[0]?.accept(); // the attempt has connected again, without a close that it saw
    expect(link.supervisorPid).toBeUndefined();
    lockHolder = 43;
    await clock.advance(SILENT_AFTER_MS);
    await expect(link.getConnection()).rejects.toThrow('run kill -9 43 on the machine');
    attempts[0]?.answer(44);
    await connecting;
    expect(link.supervisorPid).toBe(44);
  });

  it('connects again at once when the connection is lost', async () => {
    const [attempt] = await connect();
    attempt.close();
    expect([lost, attempts.length, link.supervisorPid]).toEqual([1, 2, undefined]);
    await connect(18);
    expect(link.supervisorPid).toBe(18);
  });

  it('connects again when the connection is lost before the attempt has ended', async () => {
    const connecting = link.getConnection();
    const [attempt] = attempts;
    const connection = attempt?.answer(17);
    connection?.close();
    attempt?.close();
    await connecting;
    expect(attempts).toHaveLength(2);
  });

  it('increases the delay between failed attempts up to 5 s, whatever the monitor does', async () => {
    const [attempt] = await connect();
    const monitor = new SupervisorMonitor(clock, async () => void (await link.findConnection()));
    const monitoring = monitor.run(link.signal);
    onAttempt = (failing) => failing.fail();
    attempt.close();
    await clock.advance(30_000);
    const before = attempts.length;
    await clock.advance(60_000);
    // Each delay is 5 s with a jitter of 20 %, so 60 s have 10 to 15 attempts.
    expect(attempts.length - before).toBeGreaterThanOrEqual(10);
    expect(attempts.length - before).toBeLessThanOrEqual(15);
    expect(monitor.silentMs).toBeGreaterThan(80_000);
    onAttempt = (succeeding) => void succeeding.answer(18);
    await clock.advance(6_000 + MONITOR_INTERVAL_MS);
    expect([link.supervisorPid, monitor.silentMs]).toEqual([18, 0]);
    await link.close();
    await monitoring;
  });

  it('runs one loop of attempts when the connection is lost again and again', async () => {
    const [attempt] = await connect();
    let failed = 0;
    onAttempt = async (failing) => {
      await Promise.resolve();
      failing.answer(18).close(); // the attempt succeeds with a connection that is closed already
      failing.close();
      failed += 1;
    };
    attempt.close();
    await clock.advance(60_000);
    // Each success ends the back-off, so the delays are 10 ms.
    expect(failed).toBeGreaterThan(1_000);
    expect(failed).toBeLessThan(10_000);
  });

  it('fails callers with kind unavailable after it was closed, also of a running attempt', async () => {
    const connecting = link.getConnection();
    attempts[0]?.accept();
    const closing = link.close();
    await expect(connecting).rejects.toMatchObject({ kind: 'unavailable' });
    await closing;
    await expect(link.getConnection()).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(link.findConnection()).rejects.toMatchObject({ kind: 'unavailable' });
    expect([attempts.length, lost]).toEqual([1, 0]);
  });
});
