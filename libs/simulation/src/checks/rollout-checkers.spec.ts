import { create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  ReplicaStatus_Phase as Phase,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  RolloutStatus_Phase as RolloutPhase,
  type RolloutSchema,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ControlRecord,
  type ReplicaRecord,
  type RolloutRecordSchema,
} from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import type { CheckedView } from '../parts/durable-records.js';
import {
  creationsKeepCeiling,
  stopsKeepMinAvailable,
  type Checker,
  type Commit,
} from './commit-checkers.js';
import {
  creationsHaveWantedVersion,
  rolloutsOnlyGoForward,
  canaryStepsAreKept,
  previousVersionIsKept,
  undoRestoresTemplate,
} from './rollout-checkers.js';
import { requiredUserAction, findRolloutsInProgress } from './rollout-progress.js';

const NOW_MS = 10_000;
const MANUAL = { promotion: Promotion.MANUAL };

/** Init shape with known fields, because messages are assembled from parts. */
type Fields<Schema extends DescMessage> = Exclude<
  MessageInitShape<Schema>,
  { readonly $typeName: string }
>;

/**
 * Deviations from the default state: three replicas of version 3 are wanted, and version 1 was
 * rolled out before.
 */
interface RolloutState {
  readonly replicas?: readonly ReplicaRecord[];
  readonly settings?: Fields<typeof RolloutSchema>;
  readonly control?: ControlRecord;
  readonly forced?: boolean;
}

let sequence = 0;
const replica = (init: Fields<typeof ReplicaRecordSchema> = {}): ReplicaRecord =>
  create(ReplicaRecordSchema, {
    id: `u-${(sequence += 1)}`,
    ...{
      uid: 'u',
      version: 3,
      nodeId: 'node-1',
      desiredRunning: true,
      phase: Phase.RUNNING,
      ready: true,
    },
    ...init,
  });
const many = (count: number, init: Fields<typeof ReplicaRecordSchema> = {}): ReplicaRecord[] =>
  Array.from({ length: count }, () => replica(init));
const control = (
  init: Fields<typeof ControlRecordSchema> = {},
  rollout: Fields<typeof RolloutRecordSchema> = {},
): ControlRecord =>
  create(ControlRecordSchema, {
    ...{
      uid: 'u',
      activeVersion: 1,
      observedGeneration: 1n,
      rolloutPhase: RolloutPhase.IN_PROGRESS,
    },
    rollout: { version: 3, fromVersion: 1, ...rollout },
    ...init,
  });
const changed = (
  kind: RecordChange['kind'],
  before: unknown,
  after: unknown,
  id = 'u',
): RecordChange => ({ kind, id, before, after }) as RecordChange;
const created = (made: ReplicaRecord): RecordChange => changed('replica', undefined, made);
const stopped = (before: ReplicaRecord): RecordChange =>
  changed('replica', before, create(ReplicaRecordSchema, { ...before, desiredRunning: false }));
const blueGreen = { strategy: Strategy.BLUE_GREEN };
const recreate = { strategy: Strategy.RECREATE };

function commitOf(changes: readonly RecordChange[], rolloutState: RolloutState): Commit {
  const {
    replicas = [],
    settings = {},
    control: controlRecord = control(),
    forced = false,
  } = rolloutState;
  const workload = create(WorkloadRecordSchema, {
    ...{ uid: 'u', name: 'web', version: 3, generation: 1n },
    spec: { command: ['serve'], replicas: 3, rollout: settings },
  });
  const ended = new Set(
    changes
      .filter(({ kind, before }) => kind === 'replica' && before !== undefined)
      .map(({ before }) => before),
  );
  const now = replicas.map((value) =>
    ended.has(value) ? create(ReplicaRecordSchema, { ...value, desiredRunning: false }) : value,
  );
  const node = create(NodeRecordSchema, {
    id: 'node-1',
    draining: forced,
    drain: { force: forced, deadline: timestampFromMs(NOW_MS) },
  });
  const stored = <Value>(value: Value) => ({ value, revision: 1n });
  const view = {
    workload: () => stored(workload),
    control: () => stored(controlRecord),
    node: () => stored(node),
    version: (_uid: string, version: number) =>
      create(VersionRecordSchema, {
        version,
        template: {},
        asWritten: { command: [`v${version}`] },
      }),
    replicasOf: () => now.map(stored),
  } as unknown as CheckedView;
  const nodeFacts = {
    alive: new Set(['node-1']),
    draining: new Set(forced ? ['node-1'] : []),
    cordoned: new Set<string>(),
    wallMs: NOW_MS,
  };
  return { view, changes, nodeFacts };
}

const [old1, old2, old3] = many(3, { version: 1 }) as [ReplicaRecord, ReplicaRecord, ReplicaRecord];
const newReplicas = many(3);
const superseded = replica({ version: 2 });
const inProgress = control({}, blueGreen);

const rows: readonly (RolloutState & {
  readonly name: string;
  readonly check: Checker;
  readonly changes: readonly RecordChange[];
  /** Expected violation; absent when there is none. */
  readonly violation?: RegExp;
})[] = [
  {
    name: 'invariant 13: a replica of a version that was superseded',
    check: creationsHaveWantedVersion,
    changes: [created(superseded)],
    violation: /^13: u-\d+ was created with version 2, but version 3 is wanted/,
  },
  {
    name: 'invariant 13: a replica created by a rollout that was superseded',
    check: creationsHaveWantedVersion,
    changes: [created(replica())],
    control: control({}, { version: 2 }),
    violation: /^13: u-\d+ was created by the rollout of version 2/,
  },
  {
    name: 'invariant 13: an unneeded replica of the previous version',
    check: creationsHaveWantedVersion,
    changes: [created(replica({ version: 1 }))],
    violation: /^13: u-\d+ was created with version 1/,
  },
  {
    name: 'a replica of the previous version while that version still serves',
    check: creationsHaveWantedVersion,
    changes: [created(replica({ version: 1 }))],
    control: inProgress,
  },
  {
    name: 'invariant 6: more than twice the wanted count under BLUE_GREEN',
    check: creationsKeepCeiling,
    replicas: [...newReplicas, old1, old2, old3, superseded],
    changes: [created(superseded)],
    control: inProgress,
    violation: /7 live replicas, but its ceiling is 6/,
  },
  {
    name: 'twice the wanted count under BLUE_GREEN',
    check: creationsKeepCeiling,
    replicas: [...newReplicas, old1, old2, old3],
    changes: [created(newReplicas[0]!)],
    control: inProgress,
  },
  {
    name: 'invariant 6: a new replica beside old ones under RECREATE',
    check: creationsKeepCeiling,
    replicas: [newReplicas[0]!, old1],
    changes: [created(newReplicas[0]!)],
    control: control({}, recreate),
    violation: /beside 1 of another version, but its strategy is RECREATE/,
  },
  {
    name: 'invariant 9: a stop in the active set below min_available while the new set is ready',
    check: stopsKeepMinAvailable,
    replicas: [...newReplicas, old1, old2],
    changes: [stopped(old1)],
    control: inProgress,
    violation: /1 ready replicas after a voluntary stop, but min_available is 2/,
  },
  {
    name: 'a stop in the set that does not serve',
    check: stopsKeepMinAvailable,
    replicas: [newReplicas[0]!, old1],
    changes: [stopped(newReplicas[0]!)],
    control: inProgress,
  },
  {
    name: 'the stops of RECREATE',
    check: stopsKeepMinAvailable,
    replicas: [old1, old2],
    changes: [stopped(old1), stopped(old2)],
    control: control({}, recreate),
  },
  {
    name: 'invariant 9: a stop of the new version by RECREATE below min_available',
    check: stopsKeepMinAvailable,
    replicas: [newReplicas[0]!, newReplicas[1]!],
    changes: [stopped(newReplicas[0]!)],
    control: control({}, recreate),
    violation: /1 ready replicas after a voluntary stop, but min_available is 2/,
  },
  {
    name: 'a stop by a forced drain',
    check: stopsKeepMinAvailable,
    replicas: [old1],
    changes: [stopped(old1)],
    forced: true,
  },
  {
    name: 'invariant 10: a batch that starts before the previous one is ready',
    check: stopsKeepMinAvailable,
    replicas: [old1, old2],
    changes: [stopped(old1)],
    settings: { minAvailable: 1 },
    violation:
      /^10: web has 1 ready replicas after a voluntary stop before 2 of 3 were ready again/,
  },
  {
    name: 'more replicas of the new version than the canary step allows',
    check: canaryStepsAreKept,
    replicas: [...newReplicas.slice(1), old1],
    changes: [created(newReplicas[1]!)],
    settings: { steps: [{ replicas: 1 }] },
    violation: /web has 2 replicas of version 3, but its step allows 1/,
  },
  {
    name: 'more replicas of the new version than a canary step with only a weight allows',
    check: canaryStepsAreKept,
    replicas: [...newReplicas.slice(1), old1],
    changes: [created(newReplicas[1]!)],
    settings: { steps: [{ weightPercent: 10 }] },
    violation: /web has 2 replicas of version 3, but its step allows 1/,
  },
  {
    name: 'as many replicas as a canary step with only a weight allows',
    check: canaryStepsAreKept,
    replicas: [...newReplicas.slice(1), old1],
    changes: [created(newReplicas[1]!)],
    settings: { steps: [{ weightPercent: 60 }] },
  },
  {
    name: 'as many replicas as the next step allows',
    check: canaryStepsAreKept,
    replicas: [...newReplicas.slice(1), old1],
    changes: [created(newReplicas[1]!)],
    settings: { steps: [{ replicas: 1 }, { percent: 50 }] },
    control: control({}, { stepsDone: 1 }),
  },
  {
    name: 'more replicas in a rollback than the canary step allows',
    check: canaryStepsAreKept,
    replicas: [...newReplicas.slice(1), old1],
    changes: [created(newReplicas[1]!)],
    settings: { steps: [{ replicas: 1 }] },
    control: control({}, { rollsBack: 2 }),
  },
  {
    name: 'a canary step that is forgotten',
    check: rolloutsOnlyGoForward,
    changes: [changed('control', control({}, { stepsDone: 1 }), control({}, { stepsDone: 0 }))],
    violation: /canary step 1 was done, but now only 0 are/,
  },
  {
    name: 'one promotion that passes two steps',
    check: rolloutsOnlyGoForward,
    changes: [changed('control', control({}, { promoted: true }), control({}, { stepsDone: 2 }))],
    settings: {
      steps: [
        { replicas: 1, ...MANUAL },
        { replicas: 2, ...MANUAL },
      ],
    },
    violation: /2 canary steps were passed without a promotion for each/,
  },
  {
    name: 'a promotion that is not consumed',
    check: rolloutsOnlyGoForward,
    changes: [
      changed(
        'control',
        control({}, { promoted: true }),
        control({}, { promoted: true, stepsDone: 1 }),
      ),
    ],
    settings: { steps: [{ replicas: 1, ...MANUAL }] },
    violation: /a promotion was used but not removed/,
  },
  {
    name: 'a step that passes before its wait ends',
    check: rolloutsOnlyGoForward,
    changes: [
      changed(
        'control',
        control({}, { stepReachedAt: timestampFromMs(NOW_MS - 900) }),
        control({}, { stepsDone: 1 }),
      ),
    ],
    settings: { steps: [{ replicas: 1, wait: durationFromMs(1_000) }] },
    violation: /a canary step was passed before its wait ended/,
  },
  {
    name: 'a switch to a set that is not ready',
    check: rolloutsOnlyGoForward,
    replicas: [newReplicas[0]!, newReplicas[1]!, replica({ ready: false })],
    changes: [changed('control', inProgress, control({ activeVersion: 3 }, blueGreen))],
    violation: /version 3 became active with 2 of 3 ready/,
  },
  {
    name: 'a switch without a promotion',
    check: rolloutsOnlyGoForward,
    replicas: newReplicas,
    changes: [changed('control', inProgress, control({ activeVersion: 3 }, blueGreen))],
    settings: MANUAL,
    violation: /version 3 became active without a promotion/,
  },
  {
    name: 'a switch to a set that is ready',
    check: rolloutsOnlyGoForward,
    replicas: newReplicas,
    changes: [changed('control', inProgress, control({ activeVersion: 3 }, blueGreen))],
  },
  {
    name: 'invariant 13: a superseded rollout that continues',
    check: rolloutsOnlyGoForward,
    changes: [changed('control', control(), control({}, { version: 2 }))],
    violation: /^13: the rollout of version 3 became one of version 2/,
  },
  {
    name: 'invariant 11: a rollout that pauses without a reason',
    check: rolloutsOnlyGoForward,
    changes: [changed('control', control(), control({ rolloutPhase: RolloutPhase.PAUSED }))],
    violation: /^11: the rollout is paused or failed without a reason/,
  },
  {
    name: 'invariant 11: a rollout that fails without a failure',
    check: rolloutsOnlyGoForward,
    changes: [
      changed(
        'control',
        control(),
        control({ rolloutPhase: RolloutPhase.FAILED, rolloutReason: 'failed' }),
      ),
    ],
    violation: /^11: the rollout has failed without naming the failure/,
  },
  {
    name: 'invariant 11: a completed rollout with replicas missing',
    check: rolloutsOnlyGoForward,
    replicas: [...newReplicas, old1],
    changes: [
      changed(
        'control',
        control({ activeVersion: 3 }),
        control({ activeVersion: 3, rolloutPhase: RolloutPhase.COMPLETED }),
      ),
    ],
    violation: /^11: the rollout ended with 1 replicas of other versions/,
  },
  {
    name: 'a previous version that is removed before pause_duration ends',
    check: previousVersionIsKept,
    replicas: [...newReplicas, old1],
    changes: [stopped(old1)],
    settings: { pauseDuration: durationFromMs(1_000) },
    control: control(
      { activeVersion: 3 },
      { ...blueGreen, switchedAt: timestampFromMs(NOW_MS - 400) },
    ),
    violation: /u-1 of web was stopped 600 ms before pause_duration ended/,
  },
  {
    name: 'invariant 11: an undo that restores another template',
    check: undoRestoresTemplate,
    changes: [
      changed(
        'version',
        undefined,
        create(VersionRecordSchema, { version: 3, cause: 'undo to version 1' }),
        'u/3',
      ),
    ],
    violation: /^11: undo of web to version 1 did not restore the recorded template/,
  },
  {
    name: 'invariant 11: a rollback that the spec does not request',
    check: undoRestoresTemplate,
    changes: [
      changed(
        'version',
        undefined,
        create(VersionRecordSchema, { version: 3, cause: 'rollback to version 1' }),
        'u/3',
      ),
    ],
    violation:
      /did not restore the recorded template\n11: web was rolled back, but on_failure is not ROLLBACK/,
  },
];

describe('rollout checkers', () => {
  it.each(rows.filter(({ violation }) => violation !== undefined))(
    'report $name',
    ({ check, changes, violation = /^$/, ...rolloutState }) => {
      expect(check(commitOf(changes, rolloutState)).join('\n')).toMatch(violation);
    },
  );

  it.each(rows.filter(({ violation }) => violation === undefined))(
    'accept $name',
    ({ check, changes, ...rolloutState }) => {
      expect(check(commitOf(changes, rolloutState))).toEqual([]);
    },
  );
});

describe('findRolloutsInProgress and requiredUserAction', () => {
  const { PAUSED, FAILED, COMPLETED, IN_PROGRESS } = RolloutPhase;
  it.each([
    {
      name: 'a completed rollout',
      record: control({ rolloutPhase: COMPLETED }),
      inProgress: [],
      remedy: undefined,
    },
    {
      name: 'a rollout in progress',
      record: control({ rolloutPhase: IN_PROGRESS, rolloutReason: 'not ready' }),
      inProgress: ['web: version 3 is IN_PROGRESS: not ready'],
      remedy: undefined,
    },
    {
      name: 'a rollout of an older version',
      record: control({ rolloutPhase: COMPLETED }, { version: 2 }),
      inProgress: ['web: the rollout of version 3 has not begun'],
      remedy: undefined,
    },
    {
      name: 'a spec change that was not observed yet',
      record: control({ rolloutPhase: COMPLETED, observedGeneration: 0n }),
      inProgress: ['web: generation 1 was not observed'],
      remedy: undefined,
    },
    {
      name: 'a rollout paused without a reason',
      record: control({ rolloutPhase: PAUSED }),
      inProgress: ['web: version 3 is PAUSED: '],
      remedy: 'raiseLimits',
    },
    {
      name: 'a rollout paused by a user',
      record: control({
        rolloutPhase: PAUSED,
        pausedVersion: 3,
        rolloutReason: 'paused by a user',
      }),
      inProgress: [],
      remedy: 'resume',
    },
    {
      name: 'a rollout that waits for a promotion',
      record: control(
        { rolloutPhase: PAUSED, rolloutReason: 'waits' },
        { waitsForPromotion: true },
      ),
      inProgress: [],
      remedy: 'promote',
    },
    {
      name: 'a failed rollout',
      record: control({ rolloutPhase: FAILED, rolloutReason: 'crashed' }),
      inProgress: [],
      remedy: 'resume',
    },
    {
      name: 'a rollout that failed at its deadline',
      record: control({ rolloutPhase: FAILED, rolloutReason: 'no progress for 1s' }),
      inProgress: [],
      remedy: 'giveTime',
    },
  ])('classify $name', ({ record, inProgress: expected, remedy }) => {
    const { view } = commitOf([], {
      control: record,
      settings: { progressDeadline: durationFromMs(1_000) },
    });
    const workload = view.workload('u');
    const workloads = () => (workload === undefined ? [] : [workload]);
    expect(findRolloutsInProgress({ workloads, control: (uid) => view.control(uid) })).toEqual(
      expected,
    );
    expect(workload && requiredUserAction(record, workload.value)).toBe(remedy);
  });
});
