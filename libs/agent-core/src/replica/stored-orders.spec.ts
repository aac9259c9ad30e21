import { toContainerId } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { reduceReplica } from './reduce-replica.js';
import {
  createReplicaState,
  type ContainerExit,
  type ReplicaEvent,
  type ReplicaState,
} from './replica-state.js';
import type { ReplicaTarget } from './replica-target.js';
import { restoreReplica } from './restore-replica.js';
import { toStoredReplica } from './stored-orders.js';

const CONTAINER = toContainerId('a'.repeat(64));
const NEXT = toContainerId('b'.repeat(64));
const target: ReplicaTarget = {
  ...{ restart: 'always', maxRetries: Number.POSITIVE_INFINITY, tcpPorts: [], probes: {} },
  ...{
    preStopMs: 0,
    graceMs: 10_000,
    usesImage: false,
    usesFiles: false,
    runtime: '',
    stopAfterMs: 30_000,
  },
};
const exit: ContainerExit = { containerId: CONTAINER, exitCode: 143, reason: 'ended', upMs: 10 };
const exited: ContainerStatus = {
  ...{ containerId: CONTAINER, phase: 'exited', labels: {}, startedAtMs: 0, finishedAtMs: 10 },
  ...{ exitCode: 143, reason: 'ended', endpoints: [] },
};
const running: ReplicaState = {
  ...createReplicaState('web-1', 'web'),
  ...{ heldRevision: 10n, target, phase: 'running', ready: true },
  activity: { kind: 'running', containerId: CONTAINER },
  container: { id: CONTAINER, startedAtMs: 0, endpoints: [] },
};

describe('toStoredReplica', () => {
  it.each<{ name: string; events: readonly ReplicaEvent[] }>([
    {
      name: 'its lease had ended',
      events: [{ kind: 'exited', exit: { ...exit, leaseEnded: true } }],
    },
    {
      name: 'it had exited, and the next one was not started without contact',
      events: [
        { kind: 'exited', exit },
        { kind: 'startDue', newContainerId: NEXT },
        { kind: 'outOfContact', containerId: NEXT },
      ],
    },
  ])(
    'of a replica that waits for its order lets the next agent count the end of a container once when $name',
    ({ events }) => {
      const waiting = events.reduce((state, event) => reduceReplica(state, event).state, running);
      expect(waiting).toMatchObject({ activity: { kind: 'unconfirmed' }, restarts: 1 });
      // The agent dies after it has stored the repeated order.
      const stored = toStoredReplica(waiting, { bootId: 'boot-1' });
      const containers = [exited];
      const { state } = restoreReplica({
        ...{ stored, target, containers, bootId: 'boot-1', forget: false },
      });
      expect(state).toMatchObject({ restarts: 1, activity: { kind: 'backingOff' } });
    },
  );

  it('keeps the uncounted end of a replica that waits after a reboot, for the next agent to count', () => {
    const waiting: ReplicaState = { ...running, activity: { kind: 'unconfirmed', exit } };
    const stored = toStoredReplica(waiting, { bootId: 'boot-1' });
    const { state } = restoreReplica({
      ...{ stored, target, containers: [exited], bootId: 'boot-1', forget: false },
    });
    expect(state).toMatchObject({ restarts: 1, activity: { kind: 'backingOff' } });
  });
});
