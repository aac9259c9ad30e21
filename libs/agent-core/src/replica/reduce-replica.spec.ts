import fc from 'fast-check';
import { toContainerId, type ContainerId } from '@cloudless/base';
import type { ProbeSchedule, ProbeSchedules } from '../probes/probe-schedule.js';
import { reduceReplica } from './reduce-replica.js';
import type { ReplicaTarget } from './replica-target.js';
import {
  decideRestart,
  formatDelay,
  HEALTHY_AFTER_MS,
  type ContainerEnding,
} from './restart-decision.js';
import { isEnded, isForward } from './replica-phase.js';
import {
  createReplicaState,
  type ReplicaEffect,
  type ReplicaEvent,
  type ReplicaState,
} from './replica-state.js';

const aTarget = (overrides: Partial<ReplicaTarget> = {}): ReplicaTarget => ({
  restart: 'always',
  maxRetries: Number.POSITIVE_INFINITY,
  tcpPorts: [],
  probes: {},
  preStopMs: 0,
  graceMs: 10_000,
  usesImage: false,
  usesFiles: false,
  runtime: '',
  ...overrides,
});
const exited = (exitCode: number, upMs = 0): ContainerEnding => ({
  kind: 'exited',
  exitCode,
  reason: `exit code ${exitCode}`,
  upMs,
});
const unhealthy = (exitCode: number): ContainerEnding => ({
  kind: 'exited',
  exitCode,
  reason: 'failed',
  upMs: 0,
  unhealthy: true,
});
const tcpProbe: ProbeSchedule = {
  check: { kind: 'tcp', portName: 'http' },
  ...{ initialDelayMs: 0, periodMs: 10, timeoutMs: 10, successThreshold: 1, failureThreshold: 1 },
};
const CONTAINER = toContainerId('a'.repeat(64));
/** Probe schedules by the bits of a number: 1 liveness, 2 readiness, 4 startup. */
const probesOf = (bits: number): ProbeSchedules => ({
  ...((bits & 1) === 0 ? {} : { liveness: tcpProbe }),
  ...((bits & 2) === 0 ? {} : { readiness: tcpProbe }),
  ...((bits & 4) === 0 ? {} : { startup: tcpProbe }),
});

describe('decideRestart', () => {
  const describeEnding = (ending: ContainerEnding): string => {
    if (ending.kind === 'notStarted') return 'a failed start';
    if (ending.unhealthy === true) return 'the exit of an unhealthy container';
    return `exit code ${ending.exitCode} after ${ending.upMs} ms`;
  };

  it.each(
    (
      [
        {
          restart: 'always',
          maxRetries: Infinity,
          failures: 0,
          ending: exited(0),
          kind: 'restart',
          delayMs: 100,
        },
        {
          restart: 'always',
          maxRetries: Infinity,
          failures: 1,
          ending: exited(1),
          kind: 'restart',
          delayMs: 200,
        },
        {
          restart: 'always',
          maxRetries: Infinity,
          failures: 40,
          ending: exited(1),
          kind: 'restart',
          delayMs: 300_000,
        },
        {
          restart: 'always',
          maxRetries: Infinity,
          failures: 40,
          ending: exited(1, HEALTHY_AFTER_MS),
          kind: 'restart',
          delayMs: 100,
        },
        { restart: 'always', maxRetries: 3, failures: 3, ending: exited(1), kind: 'failed' },
        {
          restart: 'always',
          maxRetries: 3,
          failures: 3,
          ending: exited(1, HEALTHY_AFTER_MS),
          kind: 'restart',
          delayMs: 100,
        },
        { restart: 'always', maxRetries: 0, failures: 0, ending: exited(1), kind: 'failed' },
        {
          restart: 'always',
          maxRetries: Infinity,
          failures: 2,
          ending: { kind: 'notStarted', reason: 'no executable' },
          kind: 'restart',
          delayMs: 400,
        },
        { restart: 'onFailure', maxRetries: 3, failures: 0, ending: exited(0), kind: 'succeeded' },
        {
          restart: 'onFailure',
          maxRetries: 3,
          failures: 2,
          ending: exited(1),
          kind: 'restart',
          delayMs: 400,
        },
        { restart: 'onFailure', maxRetries: 3, failures: 3, ending: exited(1), kind: 'failed' },
        {
          restart: 'onFailure',
          maxRetries: 3,
          failures: 0,
          ending: unhealthy(0),
          kind: 'restart',
          delayMs: 100,
        },
        {
          restart: 'never',
          maxRetries: Infinity,
          failures: 0,
          ending: unhealthy(0),
          kind: 'failed',
        },
        {
          restart: 'never',
          maxRetries: Infinity,
          failures: 0,
          ending: exited(0),
          kind: 'succeeded',
        },
        { restart: 'never', maxRetries: Infinity, failures: 0, ending: exited(1), kind: 'failed' },
        {
          restart: 'never',
          maxRetries: Infinity,
          failures: 0,
          ending: { kind: 'notStarted', reason: 'no executable' },
          kind: 'failed',
        },
      ] as const
    ).map((row) => ({
      ...row,
      end: describeEnding(row.ending),
      decision: 'delayMs' in row ? `restart in ${row.delayMs} ms` : row.kind,
    })),
  )(
    'decides "$decision" after $end, with policy $restart and $failures failures of $maxRetries retries',
    ({ ending, failures, kind, ...rest }) => {
      const decision = decideRestart(rest, ending, failures);
      expect(decision).toMatchObject(
        'delayMs' in rest ? { kind, delayMs: rest.delayMs } : { kind },
      );
      expect(decision.reason).toContain(ending.reason);
    },
  );
});

describe('formatDelay', () => {
  it.each([
    [100, '100 ms'],
    [1_600, '1.6 s'],
    [51_200, '51.2 s'],
    [300_000, '5 min'],
  ])('formats %d ms as %s', (delayMs, text) => {
    expect(formatDelay(delayMs)).toBe(text);
  });
});

/**
 * State of one replica with a simulated runtime and timers: each effect is followed by one of the
 * events that it may cause.
 */
class SimulatedReplica {
  state: ReplicaState = createReplicaState('web-1', 'web');
  readonly phases: ReplicaState['phase'][] = ['starting'];
  readonly running = new Set<ContainerId>();
  maxRunning = 0;
  private readonly pending: ReplicaEffect[] = [];
  private ids = 0;
  private revision = 0n;

  newId(): ContainerId {
    this.ids += 1;
    return toContainerId(String(this.ids).padStart(64, '0'));
  }

  apply(event: ReplicaEvent): void {
    const { state, effects } = reduceReplica(this.state, event);
    this.state = state;
    this.phases.push(state.phase);
    for (const effect of effects) {
      // One timer per replica: a newer timer replaces the older one.
      if (effect.kind === 'startAfter' || effect.kind === 'terminateAfter') this.dropTimers();
      this.pending.push(effect);
    }
  }

  /**
   * Applies an event that a pending effect causes; without a pending effect, ends a container.
   * @param pick - Selects the pending effect.
   * @param choice - Selects the event.
   */
  applyNext(pick: number, choice: number): void {
    const effect = this.pending.splice(pick % Math.max(1, this.pending.length), 1)[0];
    if (effect === undefined) return this.exitSpontaneously(choice);
    switch (effect.kind) {
      case 'start':
        return this.start(effect.containerId, choice);
      case 'startAfter':
        return this.apply({ kind: 'startDue', newContainerId: this.newId() });
      case 'terminateAfter':
        return this.apply({ kind: choice % 2 === 0 ? 'stopDue' : 'endpointsGone' });
      case 'awaitReady':
        return this.apply({ kind: 'accepted', containerId: effect.container.id });
      case 'probe': // a probe continues: its results are repeated and may be late
        this.pending.push(effect);
        return this.probe(effect.container.id, choice);
      case 'terminate':
        return this.exit(effect.containerId, 143);
      default:
        return;
    }
  }

  /**
   * Applies an order with the next revision.
   * @param choice - Modulo 4: 0 and 1 start, 2 stop, 3 forget. A start has the probes of the bits
   *   of `choice / 4`.
   */
  sendOrder(choice: number): void {
    this.revision += 1n;
    const { revision } = this;
    if (choice % 4 < 2)
      this.apply({
        kind: 'startOrdered',
        revision,
        target: aTarget({
          maxRetries: 5,
          tcpPorts: ['http'],
          probes: probesOf(Math.floor(choice / 4)),
        }),
        newContainerId: this.newId(),
      });
    else if (choice % 4 === 2)
      this.apply({
        kind: 'stopOrdered',
        revision,
        delays: {
          endpointsGoneMs: (choice % 2) * 5,
          preStopMs: (choice % 3) * 10,
          graceMs: choice,
        },
        reason: 'scaled down',
      });
    else this.apply({ kind: 'forgetOrdered', revision });
  }

  exitSpontaneously(choice: number): void {
    const [first] = this.running;
    if (first !== undefined) this.exit(first, choice % 3);
  }

  private probe(containerId: ContainerId, choice: number): void {
    const { target, ready } = this.state;
    if (choice % 4 === 0) this.apply({ kind: 'startedUp', containerId });
    else if (choice % 4 === 1) this.apply({ kind: 'unhealthy', containerId, reason: 'bad' });
    else
      this.apply({
        kind: 'probed',
        containerId,
        ready: target?.probes.readiness === undefined ? ready : choice % 4 === 2,
        reason: '',
      });
  }

  private start(containerId: ContainerId, choice: number): void {
    if (choice % 5 === 0)
      return this.apply({
        kind: 'startFailed',
        containerId,
        reason: 'no',
        uncertain: choice % 2 === 0,
      });
    this.running.add(containerId);
    this.maxRunning = Math.max(this.maxRunning, this.running.size);
    const endpoints = [{ portName: 'http', ip: '127.0.0.1', port: 1 }];
    this.apply({
      kind: 'started',
      status: { containerId, labels: {}, phase: 'running', startedAtMs: 0, endpoints },
    });
  }

  private exit(containerId: ContainerId, exitCode: number): void {
    this.running.delete(containerId);
    this.apply({
      kind: 'exited',
      exit: { containerId, exitCode, reason: `exit code ${exitCode}`, upMs: 0 },
    });
    this.apply({
      kind: 'exited',
      exit: { containerId, exitCode, reason: `exit code ${exitCode}`, upMs: 0 },
    }); // events may be duplicated
  }

  private dropTimers(): void {
    for (let index = this.pending.length - 1; index >= 0; index -= 1) {
      const kind = this.pending[index]?.kind;
      if (kind === 'startAfter' || kind === 'terminateAfter') this.pending.splice(index, 1);
    }
  }
}

describe('reduceReplica', () => {
  const arbitraryMove = fc.record({
    order: fc.integer({ min: 0, max: 9 }),
    pick: fc.nat(20),
    choice: fc.nat(100),
  });

  it('moves the phase only forward, runs at most one container, and sets ready only while the container runs', () => {
    fc.assert(
      fc.property(fc.array(arbitraryMove, { maxLength: 60 }), (moves) => {
        const replica = new SimulatedReplica();
        replica.sendOrder(0);
        for (const { order, pick, choice } of moves) {
          if (order === 0) replica.sendOrder(choice);
          else if (order === 1) replica.exitSpontaneously(choice);
          else replica.applyNext(pick, choice);
          const { state } = replica;
          expect(
            !state.ready || (state.phase === 'running' && state.activity.kind === 'running'),
          ).toBe(true);
          if (state.activity.kind === 'killing')
            expect([state.phase, replica.running.size]).toEqual(['running', 1]);
          expect(isEnded(state.phase)).toBe(state.activity.kind === 'ended');
          expect(state.ended.length).toBeLessThanOrEqual(2);
        }
        replica.phases
          .slice(1)
          .forEach((phase, index) =>
            expect(isForward(replica.phases[index] ?? phase, phase)).toBe(true),
          );
        expect(replica.maxRunning).toBeLessThanOrEqual(1);
      }),
      { numRuns: 2_000 },
    );
  });

  it('reaches a final phase after a stop order, whatever happened before', () => {
    fc.assert(
      fc.property(fc.array(arbitraryMove, { maxLength: 30 }), (moves) => {
        const replica = new SimulatedReplica();
        replica.sendOrder(0);
        for (const { pick, choice } of moves) replica.applyNext(pick, choice);
        replica.sendOrder(2);
        for (let turn = 0; turn < 20; turn += 1) replica.applyNext(0, 1);
        expect(isEnded(replica.state.phase)).toBe(true);
        expect(replica.running.size).toBe(0);
      }),
      { numRuns: 1_000 },
    );
  });

  it('ignores events of other containers', () => {
    const replica = new SimulatedReplica();
    replica.sendOrder(0);
    replica.applyNext(0, 1);
    const before = replica.state;
    const other = toContainerId('f'.repeat(64));
    replica.apply({
      kind: 'exited',
      exit: { containerId: other, exitCode: 0, reason: 'completed', upMs: 0 },
    });
    replica.apply({ kind: 'accepted', containerId: other });
    replica.apply({ kind: 'probed', containerId: other, ready: !before.ready, reason: 'no' });
    replica.apply({ kind: 'startedUp', containerId: other });
    replica.apply({ kind: 'unhealthy', containerId: other, reason: 'no' });
    replica.apply({ kind: 'startFailed', containerId: other, reason: 'no', uncertain: false });
    expect(replica.state).toEqual(before);
  });
});

describe('reduceReplica after a failed start', () => {
  const failedStart = {
    kind: 'startFailed',
    containerId: CONTAINER,
    reason: 'exec: "run": permission denied',
  } as const;

  it.each([
    {
      restart: 'never',
      phase: 'failed',
      reason: 'exec: "run": permission denied; never restarted',
    },
    {
      restart: 'onFailure',
      phase: 'starting',
      reason: 'exec: "run": permission denied, restarting in 100 ms',
    },
    {
      restart: 'always',
      phase: 'starting',
      reason: 'exec: "run": permission denied, restarting in 100 ms',
    },
  ] as const)(
    'reports the message of the runtime and no exit code under policy $restart',
    ({ restart, phase, reason }) => {
      const { state } = reduceReplica(
        { ...aStartingReplica(0), target: aTarget({ restart }) },
        { ...failedStart, uncertain: false },
      );
      expect(state).toMatchObject({ phase, ready: false, reason });
      expect([state.lastExitCode, state.lastEndReason]).toEqual([undefined, undefined]);
    },
  );

  it('keeps the exit code of the previous container and reports "not started" when a restart fails', () => {
    const runningState: ReplicaState = {
      ...aStartingReplica(0),
      ...{
        phase: 'running',
        restarts: 1,
        failures: 1,
        lastExitCode: 3,
        lastEndReason: 'exit code 3',
      },
    };
    expect(reduceReplica(runningState, { ...failedStart, uncertain: false }).state).toMatchObject({
      phase: 'running',
      lastExitCode: 3,
      lastEndReason: 'not started: exec: "run": permission denied',
    });
  });
});

describe('reduceReplica with probes', () => {
  /** A running replica with the probes of the bits. */
  function aRunningReplica(bits: number): SimulatedReplica {
    const replica = new SimulatedReplica();
    replica.sendOrder(bits * 4); // a start order
    replica.applyNext(0, 1);
    return replica;
  }
  const idOf = (replica: SimulatedReplica): ContainerId =>
    replica.state.container?.id ?? replica.newId();

  it.each([
    { probes: 'no probe', bits: 0, reason: 'waiting for port http to accept connections' },
    { probes: 'a liveness probe', bits: 1, reason: 'waiting for port http to accept connections' },
    { probes: 'a readiness probe', bits: 2, reason: 'waiting for the readiness probe' },
    { probes: 'a startup probe', bits: 4, reason: 'waiting for the startup probe' },
    { probes: 'all three probes', bits: 7, reason: 'waiting for the startup probe' },
  ])('makes a replica with $probes not ready after the start: $reason', ({ bits, reason }) => {
    const { state } = reduceReplica(aStartingReplica(bits), startedEvent());
    expect(state).toMatchObject({ phase: 'running', ready: false, reason });
  });

  it.each([
    { awaited: 'the readiness probe', bits: 6, reason: 'waiting for the readiness probe' },
    {
      awaited: 'the TCP port without a readiness probe',
      bits: 4,
      reason: 'waiting for port http to accept connections',
    },
  ])('waits for $awaited once the startup probe has passed', ({ bits, reason }) => {
    const started = reduceReplica(aStartingReplica(bits), startedEvent()).state;
    expect(
      reduceReplica(started, { kind: 'startedUp', containerId: CONTAINER }).state,
    ).toMatchObject({ ready: false, reason });
  });

  it('stops an unhealthy container with its grace period and restarts the replica in the same phase', () => {
    const started = reduceReplica(aStartingReplica(1), startedEvent()).state;
    const kill = reduceReplica(started, {
      kind: 'unhealthy',
      containerId: CONTAINER,
      reason: 'liveness probe: bad',
    });
    expect(kill.effects).toEqual([{ kind: 'terminate', containerId: CONTAINER, graceMs: 10_000 }]);
    expect(kill.state).toMatchObject({
      phase: 'running',
      ready: false,
      reason: 'liveness probe: bad',
    });
    const exit = { containerId: CONTAINER, exitCode: 0, reason: 'completed', upMs: 0 };
    const after = reduceReplica(kill.state, { kind: 'exited', exit });
    expect(after.effects).toEqual([{ kind: 'startAfter', delayMs: 100, isBackoff: true }]);
    expect(after.state).toMatchObject({
      restarts: 1,
      reason: 'liveness probe: bad (completed), restarting in 100 ms',
      lastEndReason: 'liveness probe: bad (completed)',
    });
  });

  it('stops the replica without a restart when a stop order arrives while an unhealthy container is killed', () => {
    const replica = aRunningReplica(1);
    replica.apply({ kind: 'unhealthy', containerId: idOf(replica), reason: 'bad' });
    replica.sendOrder(2);
    expect(replica.state).toMatchObject({ phase: 'stopping', activity: { kind: 'terminating' } });
    for (let turn = 0; turn < 5; turn += 1) replica.applyNext(0, 2);
    expect(replica.state).toMatchObject({ phase: 'stopped', restarts: 0 });
  });
});

function aStartingReplica(bits: number): ReplicaState {
  return {
    ...createReplicaState('web-1', 'web'),
    heldRevision: 1n,
    target: aTarget({ tcpPorts: ['http'], probes: probesOf(bits) }),
    activity: { kind: 'starting', containerId: CONTAINER },
  };
}

function startedEvent(): ReplicaEvent {
  const endpoints = [{ portName: 'http', ip: '127.0.0.1', port: 1 }];
  return {
    kind: 'started',
    status: { containerId: CONTAINER, labels: {}, phase: 'running', startedAtMs: 0, endpoints },
  };
}
