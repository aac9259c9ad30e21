import { Code, ConnectError } from '@connectrpc/connect';
import { ManualClock, settle } from '@cloudless/base/testing';
import { defaultRpcLimits } from '../options.js';
import { CallAdmission, type CallAdmissionSettings } from './call-admission.js';
import type { CallPriority } from './call-priority.js';
import type { OverloadLevel } from './overload-detector.js';
import { RETRY_AFTER_HEADER } from './retryable-error.js';

const never = new AbortController().signal;
const ampleLimits = { running: 100, waiting: 100, waitMs: 1_000 };

/** Returns a call admission whose event loop iterations the test runs with `runIteration`. */
function anAdmission(override: Partial<CallAdmissionSettings> = {}) {
  const clock = new ManualClock();
  const iterations: (() => void)[] = [];
  const admission = new CallAdmission({
    clock,
    priorities: { control: ampleLimits, stop: ampleLimits, write: ampleLimits, read: ampleLimits },
    runningPerPrincipal: 16,
    callsPerIteration: 2,
    getOverload: () => 0,
    nextIteration: (action) => void iterations.push(action),
    ...override,
  });
  const started: string[] = [];
  const refused: Record<string, ConnectError> = {};
  const endCalls = new Map<string, () => void>();
  /** Requests admission, and records the name as started, or the error as refused. */
  const startCall = (
    priority: CallPriority,
    principal: string,
    name = principal,
    signal = never,
  ): void => {
    admission.admit(priority, principal, signal).then(
      (end) => {
        started.push(name);
        endCalls.set(name, end);
      },
      (reason: unknown) => (refused[name] = reason as ConnectError),
    );
  };
  /** Runs the next iteration of the event loop, and returns the calls that started in it. */
  const runIteration = async (): Promise<readonly string[]> => {
    await settle();
    const before = started.length;
    for (const action of iterations.splice(0)) action();
    await settle();
    return started.slice(before);
  };
  return { admission, clock, startCall, runIteration, started, refused, endCalls };
}

describe('CallAdmission.admit', () => {
  it('starts higher priorities first, but at least one call of each priority in each iteration', async () => {
    const { startCall, runIteration, started } = anAdmission({ callsPerIteration: 2 });
    for (const priority of ['read', 'write', 'stop'] as const)
      for (const n of [1, 2, 3, 4]) startCall(priority, priority, `${priority}${n}`);
    await settle();
    // read1 started at once: the queue was empty
    expect(started).toEqual(['read1', 'read2', 'write1', 'stop1']);
    expect(await runIteration()).toEqual(['stop2', 'stop3', 'write2', 'read3']);
    expect(await runIteration()).toEqual(['stop4', 'write3', 'read4']);
    expect(await runIteration()).toEqual(['write4']);
  });

  it('starts one call of each priority per iteration, but all control calls, under overload', async () => {
    const { startCall, runIteration, started } = anAdmission({
      callsPerIteration: 8,
      getOverload: () => 1,
    });
    for (const n of [1, 2, 3]) startCall('stop', 's', `stop${n}`);
    for (const n of [1, 2, 3]) startCall('control', 'agent', `control${n}`);
    await settle();
    expect(started).toEqual(['stop1', 'control1', 'control2', 'control3']);
    expect(await runIteration()).toEqual(['stop2']);
  });

  it('starts the single call of one client among the first of fifty calls of another client', async () => {
    const { startCall, runIteration } = anAdmission({ callsPerIteration: 3 });
    for (let n = 1; n <= 50; n += 1) startCall('read', 'flood', `flood${n}`);
    startCall('read', 'single');
    expect(await runIteration()).toContain('single');
  });

  it('starts a call only when its client and its priority are below their limits', async () => {
    const { startCall, runIteration, started, endCalls } = anAdmission({
      callsPerIteration: 100,
      runningPerPrincipal: 1,
      priorities: { ...defaultRpcLimits.priorities, write: { ...ampleLimits, running: 2 } },
    });
    for (const name of ['a1', 'a2', 'b1', 'c1']) startCall('write', name.slice(0, 1), name);
    await runIteration();
    expect(started).toEqual(['a1', 'b1']);
    endCalls.get('b1')?.();
    await settle();
    expect(started).toEqual(['a1', 'b1', 'c1']); // a2 came first, but client a is at its limit
    for (const name of ['a1', 'a1', 'a1']) endCalls.get(name)?.(); // repeated calls have no effect
    await settle();
    expect(started).toEqual(['a1', 'b1', 'c1', 'a2']);
  });

  it('counts each running call of a client until that call endCalls', async () => {
    const { startCall, runIteration, started, endCalls } = anAdmission({
      callsPerIteration: 100,
      runningPerPrincipal: 2,
    });
    for (const name of ['a1', 'a2', 'a3', 'a4']) startCall('write', 'a', name);
    await runIteration();
    expect(started).toEqual(['a1', 'a2']);
    endCalls.get('a1')?.();
    await settle();
    expect(started).toEqual(['a1', 'a2', 'a3']);
    endCalls.get('a2')?.();
    await settle();
    expect(started).toEqual(['a1', 'a2', 'a3', 'a4']);
  });

  it('starts a call of a blocked principal only after canStart allows it and recheck runs', async () => {
    let isAllowed = false;
    const { admission, startCall, started } = anAdmission({ canStart: () => isAllowed });
    startCall('read', 'a');
    startCall('control', 'agent');
    await settle();
    expect(started).toEqual(['agent']);
    isAllowed = true;
    admission.recheck();
    await settle();
    expect(started).toEqual(['agent', 'a']);
  });
});

describe('CallAdmission.getLoad', () => {
  it('counts running, waiting and admitted calls of each priority from 0', async () => {
    const { admission, startCall, runIteration, endCalls } = anAdmission({
      priorities: { ...defaultRpcLimits.priorities, write: { ...ampleLimits, running: 1 } },
    });
    const none = { running: 0, waiting: 0, admitted: 0, shed: { overload: 0, full: 0, waited: 0 } };
    expect(admission.getLoad()).toEqual({ control: none, stop: none, write: none, read: none });
    startCall('write', 'a', 'a1');
    startCall('write', 'a', 'a2');
    await runIteration();
    expect(admission.getLoad().write).toEqual({ ...none, running: 1, waiting: 1, admitted: 1 });
    endCalls.get('a1')?.();
    await runIteration();
    endCalls.get('a2')?.();
    expect(admission.getLoad().write).toEqual({ ...none, admitted: 2 });
  });
});

describe('CallAdmission', () => {
  it('refuses a call that has waited for waitMs, with the time after which to retry', async () => {
    const { admission, clock, startCall, refused } = anAdmission({ canStart: () => false });
    startCall('read', 'a');
    await clock.advance(999);
    expect(refused).toEqual({});
    await clock.advance(1);
    expect(refused['a']).toMatchObject({
      code: Code.ResourceExhausted,
      rawMessage: 'the call waited too long behind other read calls; try again in 1 s',
    });
    expect(refused['a']?.metadata.get(RETRY_AFTER_HEADER)).toBe('1000');
    expect(refused['a']?.metadata.get('retry-after')).toBe('1');
    expect(refused['a']?.metadata.get('grpc-retry-pushback-ms')).toBe('1000');
    expect(admission.getLoad().read).toMatchObject({ running: 0, waiting: 0, shed: { waited: 1 } });
    expect(clock.pendingTimers).toBe(0);
  });

  it('refuses the newest call of the client with the most waiting calls when the queue is full', async () => {
    const priorities = { ...defaultRpcLimits.priorities, read: { ...ampleLimits, waiting: 2 } };
    const { startCall, refused } = anAdmission({ canStart: () => false, priorities });
    startCall('read', 'a', 'a1');
    startCall('read', 'a', 'a2');
    startCall('read', 'a', 'a3');
    startCall('read', 'b', 'b1');
    await settle();
    expect(Object.keys(refused)).toEqual(['a3', 'a2']);
    expect(refused['a3']?.rawMessage).toBe(
      'too many read calls are waiting on the server; try again in 1 s',
    );
  });

  it('removes a call from the queue when its client has gone', async () => {
    const { admission, clock, startCall, refused } = anAdmission({ canStart: () => false });
    const client = new AbortController();
    startCall('read', 'a', 'a', client.signal);
    client.abort(new ConnectError('gone', Code.Canceled));
    startCall('read', 'b', 'b', client.signal);
    await settle();
    expect(Object.values(refused).map(({ code }) => code)).toEqual([Code.Canceled, Code.Canceled]);
    expect([admission.getLoad().read.waiting, clock.pendingTimers]).toEqual([0, 0]);
  });

  it.each<{ level: OverloadLevel; name: string; expected: readonly string[] }>([
    { level: 0, name: 'no call', expected: [] },
    { level: 1, name: 'only the second read of a client', expected: ['second read'] },
    { level: 2, name: 'all reads', expected: ['read', 'second read'] },
    { level: 3, name: 'all writes and reads', expected: ['write', 'read', 'second read'] },
  ])('refuses $name at overload level $level', async ({ level, expected }) => {
    const { admission, startCall } = anAdmission({ getOverload: () => level });
    startCall('read', 'busy');
    await settle();
    const refusedCalls: string[] = [];
    const attempt = (name: string, priority: CallPriority, principal: string): void => {
      try {
        admission.refuseIfOverloaded(priority, principal);
      } catch (reason) {
        expect(reason).toMatchObject({
          code: Code.ResourceExhausted,
          rawMessage: expect.stringMatching(/overloaded.*try again in 2 s$/),
        });
        refusedCalls.push(name);
      }
    };
    for (const priority of ['control', 'stop', 'write', 'read'] as const)
      attempt(priority, priority, 'other');
    attempt('second read', 'read', 'busy');
    expect(refusedCalls).toEqual(expected);
  });
});
