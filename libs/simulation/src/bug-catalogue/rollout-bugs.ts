import { create, equals, toBinary } from '@bufbuild/protobuf';
import {
  ReplicaStatus_Phase as Phase,
  RolloutSchema,
  Rollout_Strategy as Strategy,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  type ControlRecord,
  type ReplicaRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import {
  toCanonicalVersion,
  copyReplica,
  decodeRecord,
  parseKey,
  type ChangeListener,
  type ClusterState,
  type ClusterView,
  type RecordChange,
  type Stored,
} from '@cloudless/cluster-state';
import type { Operation, StateStore, StoreEntry } from '@cloudless/state-store';
import type { KnownBug } from './known-bug.js';

/** Worlds with many users and few faults, so that most commits belong to rollouts. */
const BUSY_WORLD = {
  nodes: 4,
  users: 3,
  turmoilMs: 12_000,
  pauseMs: [200, 900],
  drift: false,
} as const;

/** Bugs in rollouts. */
export const ROLLOUT_BUGS: readonly KnownBug[] = [
  {
    name: 'update that stopped the last ready replicas because it did not know that others had failed',
    story:
      'A replica failed while the next batch of an update was decided. Both changes were committed, and together they took the service below min_available.',
    injection: 'stops are committed without the readiness guard',
    inject: () => ({ store: dropReadinessGuard }),
    plan: { ...BUSY_WORLD, weights: { slowDisk: 6, containerCrashes: 6 } },
    checker: 'checks/commit-checkers.ts',
    expectedViolation:
      /^\S+ has \d+ ready replicas after a voluntary stop, but min_available is \d+|^10: /,
    seed: 3,
  },
  {
    name: 'traffic switched to a new replica set that was not ready',
    story:
      'The switch checked that the new processes existed, not that they were ready. For minutes no process answered requests.',
    injection: 'under BLUE_GREEN the controllers treat running replicas of the new set as ready',
    inject: () => ({
      state: (state, reader) => (reader === 'controllers' ? reportNewSetsReady(state) : state),
    }),
    plan: { ...BUSY_WORLD, weights: {} },
    checker: 'checks/rollout-checkers.ts',
    expectedViolation: /^version \d+ became active with \d+ of \d+ ready/,
    seed: 4,
  },
  {
    name: 'canary that restarted from its first step, or was promoted, after a control plane restart',
    story:
      'The progress of a canary was kept in the memory of a controller. After its restart the completed steps were unknown.',
    injection: 'a starting coordinator does not read the number of completed steps',
    inject: () => ({ store: forgetSteps }),
    plan: { ...BUSY_WORLD, weights: { killCoordinator: 1 } },
    checker: 'checks/rollout-checkers.ts',
    expectedViolation: /^canary step \d+ was done, but now only 0 are/,
    seed: 42,
  },
  {
    name: 'one promotion that passed two canary steps',
    story:
      'A user promoted a step. The promotion was not removed, so the next step, which also needed approval, passed without one.',
    injection: 'a promotion is not removed when it is used',
    inject: () => ({ store: keepPromotions() }),
    plan: { ...BUSY_WORLD, weights: {} },
    checker: 'checks/rollout-checkers.ts',
    expectedViolation:
      /^a promotion was used but not removed|were passed without a promotion for each/,
    seed: 30,
  },
  {
    name: 'update that continued after a newer spec had superseded it',
    story:
      'A worker read the spec at its start and rolled it out to the end. A fix that a user made meanwhile took effect only after the broken version was everywhere.',
    injection:
      'the controllers see a changed spec half a second late, and their transactions do not check its revision',
    inject: () => ({
      store: dropConditions('/workload/'),
      state: (state, reader, clock) =>
        reader === 'controllers' ? delaySpecs(state, clock) : state,
    }),
    plan: { ...BUSY_WORLD, weights: {} },
    checker: 'checks/rollout-checkers.ts',
    expectedViolation: /^13: /,
    seed: 1,
  },
];

/** Removes the conditions on records below a key prefix from every transaction. */
function dropConditions(prefix: string): (store: StateStore) => StateStore {
  return (store) => ({
    ...store,
    txn: (compares, operations) =>
      store.txn(
        compares.filter(({ key }) => !key.startsWith(prefix)),
        operations,
      ),
  });
}

const dropReadinessGuard = dropConditions('/evidence/');

function reportNewSetsReady(state: ClusterState): ClusterState {
  const isInNewSet = ({ uid, version, desiredRunning, phase }: ReplicaRecord): boolean => {
    const view = state.view();
    const control = view.control(uid)?.value;
    if (control?.rollout?.strategy !== Strategy.BLUE_GREEN || control.activeVersion === 0)
      return false;
    const active = toCanonicalVersion(view, uid, control.activeVersion);
    return (
      desiredRunning && phase === Phase.RUNNING && toCanonicalVersion(view, uid, version) !== active
    );
  };
  const showReady = (replica: ReplicaRecord): ReplicaRecord =>
    isInNewSet(replica) ? copyReplica(replica, { ready: true }) : replica;
  const showChange = (change: RecordChange): RecordChange =>
    change.kind === 'replica' && change.after !== undefined
      ? { ...change, after: showReady(change.after as ReplicaRecord) }
      : change;
  return Object.create(state, {
    subscribe: {
      value: (listener: ChangeListener) =>
        state.subscribe((changes, ...rest) => listener(changes.map(showChange), ...rest)),
    },
  }) as ClusterState;
}

function forgetSteps(store: StateStore): StateStore {
  let isStarting = true;
  const forget = (entry: StoreEntry): StoreEntry => {
    const parsed = parseKey(entry.key);
    if (parsed?.kind !== 'control') return entry;
    const record = decodeRecord('control', parsed.id, entry.value);
    if (record.rollout !== undefined) record.rollout.stepsDone = 0;
    return { ...entry, value: toBinary(ControlRecordSchema, record) };
  };
  return {
    ...store,
    range: async (request) => {
      const page = await store.range(request);
      return isStarting ? { ...page, entries: page.entries.map(forget) } : page;
    },
    watch: (request) => {
      isStarting = false;
      return store.watch(request);
    },
  };
}

function keepPromotions(): (store: StateStore) => StateStore {
  const before = new Map<string, ControlRecord>();
  const keep = (operation: Operation): Operation => {
    const parsed = 'put' in operation ? parseKey(operation.put) : undefined;
    if (!('put' in operation) || parsed?.kind !== 'control') return operation;
    const record = decodeRecord('control', parsed.id, operation.value);
    const former = before.get(parsed.id)?.rollout;
    if (
      record.rollout !== undefined &&
      former?.promoted === true &&
      former.version === record.rollout.version
    )
      record.rollout.promoted = true;
    before.set(parsed.id, record);
    return { ...operation, value: toBinary(ControlRecordSchema, record) };
  };
  return (store) => ({
    ...store,
    txn: (compares, operations) => store.txn(compares, operations.map(keep)),
  });
}

/** Delay before the controllers see a changed spec, milliseconds. */
const SPEC_DELAY_MS = 500;

/**
 * Returns true when a change keeps the replica count and rollout settings. Only such changes are
 * delayed, because a delayed change of limits would violate other invariants first.
 */
function hasSameLimits(
  { spec: former }: WorkloadRecord,
  { spec: current, deletionRequestedAt }: WorkloadRecord,
): boolean {
  const [before, after] = [
    former?.rollout ?? create(RolloutSchema),
    current?.rollout ?? create(RolloutSchema),
  ];
  return (
    deletionRequestedAt === undefined &&
    former?.replicas === current?.replicas &&
    equals(RolloutSchema, before, after)
  );
}

function delaySpecs(state: ClusterState, clock: Clock): ClusterState {
  const earlier = new Map<string, { readonly value: WorkloadRecord; readonly untilMs: number }>();
  state.subscribe((changes) => {
    for (const { kind, id, before, after } of changes) {
      if (kind !== 'workload' || before === undefined || after === undefined) continue;
      const [former, current] = [before as WorkloadRecord, after as WorkloadRecord];
      if (hasSameLimits(former, current))
        earlier.set(id, { value: former, untilMs: clock.now() + SPEC_DELAY_MS });
      else earlier.delete(id);
    }
  });
  const showEarlier = (
    stored: Stored<WorkloadRecord> | undefined,
  ): Stored<WorkloadRecord> | undefined => {
    const old = stored === undefined ? undefined : earlier.get(stored.value.uid);
    return stored === undefined || old === undefined || old.untilMs < clock.now()
      ? stored
      : { ...stored, value: old.value };
  };
  return Object.create(state, {
    view: {
      value: () => {
        const view = state.view();
        const overrides: Partial<ClusterView> = {
          workload: (uid) => showEarlier(view.workload(uid)),
        };
        return Object.assign(Object.create(view), overrides) as ClusterView;
      },
    },
  }) as ClusterState;
}
