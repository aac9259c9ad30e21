import fc from 'fast-check';
import { toContainerId, type ContainerId } from '@cloudless/base';
import { reduceReplica } from './reduce-replica.js';
import type { ReplicaPlan } from './replica-plan.js';
import { decideRestart, formatDelay, HEALTHY_AFTER_MS, type Ending } from './restart-decision.js';
import { isEnded, isForward, newReplica, type ReplicaEffect, type ReplicaEvent, type ReplicaState } from './replica-state.js';

const plan = (overrides: Partial<ReplicaPlan> = {}): ReplicaPlan => ({
  restart: 'always',
  maxRetries: Number.POSITIVE_INFINITY,
  tcpPorts: [],
  preStopMs: 0,
  graceMs: 10_000,
  runtime: '',
  ...overrides,
});
const exited = (exitCode: number, upMs = 0): Ending => ({ kind: 'exited', exitCode, reason: `exit code ${exitCode}`, upMs });

describe('decideRestart', () => {
  it.each([
    { restart: 'always', maxRetries: Infinity, failures: 0, ending: exited(0), kind: 'restart', delayMs: 100 },
    { restart: 'always', maxRetries: Infinity, failures: 1, ending: exited(1), kind: 'restart', delayMs: 200 },
    { restart: 'always', maxRetries: Infinity, failures: 40, ending: exited(1), kind: 'restart', delayMs: 300_000 },
    { restart: 'always', maxRetries: Infinity, failures: 40, ending: exited(1, HEALTHY_AFTER_MS), kind: 'restart', delayMs: 100 },
    { restart: 'always', maxRetries: 3, failures: 3, ending: exited(1), kind: 'failed' },
    { restart: 'always', maxRetries: 3, failures: 3, ending: exited(1, HEALTHY_AFTER_MS), kind: 'restart', delayMs: 100 },
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
    { restart: 'onFailure', maxRetries: 3, failures: 2, ending: exited(1), kind: 'restart', delayMs: 400 },
    { restart: 'onFailure', maxRetries: 3, failures: 3, ending: exited(1), kind: 'failed' },
    { restart: 'never', maxRetries: Infinity, failures: 0, ending: exited(0), kind: 'succeeded' },
    { restart: 'never', maxRetries: Infinity, failures: 0, ending: exited(1), kind: 'failed' },
    {
      restart: 'never',
      maxRetries: Infinity,
      failures: 0,
      ending: { kind: 'notStarted', reason: 'no executable' },
      kind: 'failed',
    },
  ] as const)(
    '$restart with $failures failures of $maxRetries retries after $ending: $kind $delayMs',
    ({ ending, failures, kind, ...rest }) => {
      const decision = decideRestart(rest, ending, failures);
      expect(decision).toMatchObject('delayMs' in rest ? { kind, delayMs: rest.delayMs } : { kind });
      expect(decision.reason).toContain(ending.reason);
    },
  );

  it.each([
    [100, '100 ms'],
    [1_600, '1.6 s'],
    [51_200, '51.2 s'],
    [300_000, '5 min'],
  ])('says %d ms as %s', (delayMs, text) => {
    expect(formatDelay(delayMs)).toBe(text);
  });
});

/** Plays the runtime and the timers: answers each effect by one of the events that may follow it. */
class Player {
  state: ReplicaState = newReplica('web-1', 'web');
  readonly phases: ReplicaState['phase'][] = ['starting'];
  readonly running = new Set<ContainerId>();
  mostRunning = 0;
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
      // One timer per replica: a newer one replaces it.
      if (effect.kind === 'startAfter' || effect.kind === 'terminateAfter') this.dropTimers();
      this.pending.push(effect);
    }
  }

  /** Does the `pick`-th thing that may happen now. */
  happen(pick: number, choice: number): void {
    const effect = this.pending.splice(pick % Math.max(1, this.pending.length), 1)[0];
    if (effect === undefined) return this.spontaneous(choice);
    switch (effect.kind) {
      case 'start':
        return this.start(effect.containerId, choice);
      case 'startAfter':
        return this.apply({ kind: 'startDue', newContainerId: this.newId() });
      case 'terminateAfter':
        return this.apply({ kind: 'stopDue' });
      case 'awaitReady':
        return this.apply({ kind: 'accepted', containerId: effect.container.id });
      case 'terminate':
        return this.exit(effect.containerId, 143);
      default:
        return;
    }
  }

  order(choice: number): void {
    this.revision += 1n;
    const { revision } = this;
    if (choice % 4 < 2)
      this.apply({
        kind: 'startOrdered',
        revision,
        plan: plan({ maxRetries: 5, tcpPorts: ['http'] }),
        newContainerId: this.newId(),
      });
    else if (choice % 4 === 2)
      this.apply({ kind: 'stopOrdered', revision, delays: { preStopMs: (choice % 3) * 10, graceMs: choice }, reason: 'told to' });
    else this.apply({ kind: 'forgetOrdered', revision });
  }

  spontaneous(choice: number): void {
    const [first] = this.running;
    if (first !== undefined) this.exit(first, choice % 3);
  }

  private start(containerId: ContainerId, choice: number): void {
    if (choice % 5 === 0) return this.apply({ kind: 'startFailed', containerId, reason: 'no', uncertain: choice % 2 === 0 });
    this.running.add(containerId);
    this.mostRunning = Math.max(this.mostRunning, this.running.size);
    const endpoints = [{ portName: 'http', ip: '127.0.0.1', port: 1 }];
    this.apply({ kind: 'started', status: { containerId, labels: {}, phase: 'running', startedAtMs: 0, endpoints } });
  }

  private exit(containerId: ContainerId, exitCode: number): void {
    this.running.delete(containerId);
    this.apply({ kind: 'exited', exit: { containerId, exitCode, reason: `exit code ${exitCode}`, upMs: 0 } });
    this.apply({ kind: 'exited', exit: { containerId, exitCode, reason: `exit code ${exitCode}`, upMs: 0 } }); // events may be doubled
  }

  private dropTimers(): void {
    for (let index = this.pending.length - 1; index >= 0; index -= 1) {
      const kind = this.pending[index]?.kind;
      if (kind === 'startAfter' || kind === 'terminateAfter') this.pending.splice(index, 1);
    }
  }
}

describe('reduceReplica', () => {
  const arbMove = fc.record({ order: fc.integer({ min: 0, max: 9 }), pick: fc.nat(20), choice: fc.nat(100) });

  it('only goes forward, runs one container at most, and is ready only while it runs', () => {
    fc.assert(
      fc.property(fc.array(arbMove, { maxLength: 60 }), (moves) => {
        const player = new Player();
        player.order(0);
        for (const { order, pick, choice } of moves) {
          if (order === 0) player.order(choice);
          else if (order === 1) player.spontaneous(choice);
          else player.happen(pick, choice);
          const { state } = player;
          expect(!state.ready || (state.phase === 'running' && state.activity.kind === 'running')).toBe(true);
          expect(isEnded(state.phase)).toBe(state.activity.kind === 'ended');
          expect(state.ended.length).toBeLessThanOrEqual(2);
        }
        player.phases.slice(1).forEach((phase, index) => expect(isForward(player.phases[index] ?? phase, phase)).toBe(true));
        expect(player.mostRunning).toBeLessThanOrEqual(1);
      }),
      { numRuns: 2_000 },
    );
  });

  it('always gets to an end once it was told to stop', () => {
    fc.assert(
      fc.property(fc.array(arbMove, { maxLength: 30 }), (moves) => {
        const player = new Player();
        player.order(0);
        for (const { pick, choice } of moves) player.happen(pick, choice);
        player.order(2);
        for (let turn = 0; turn < 20; turn += 1) player.happen(0, 1);
        expect(isEnded(player.state.phase)).toBe(true);
        expect(player.running.size).toBe(0);
      }),
      { numRuns: 1_000 },
    );
  });

  it('takes no event of another container for its own', () => {
    const player = new Player();
    player.order(0);
    player.happen(0, 1);
    const before = player.state;
    const other = toContainerId('f'.repeat(64));
    player.apply({ kind: 'exited', exit: { containerId: other, exitCode: 0, reason: 'completed', upMs: 0 } });
    player.apply({ kind: 'accepted', containerId: other });
    player.apply({ kind: 'startFailed', containerId: other, reason: 'no', uncertain: false });
    expect(player.state).toEqual(before);
  });
});
