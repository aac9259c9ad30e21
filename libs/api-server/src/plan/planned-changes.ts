import { resolveNamespace, type PlannedChange, type WorkloadPlan } from '@cloudless/api';
import type { NodeRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, type Violation } from '@cloudless/base';
import type { ClusterView, Stored, Transaction } from '@cloudless/cluster-state';
import { startDrain, type NodeChange } from '../node/drain.js';
import { requireNode, putNodeChange } from '../node/node-handlers.js';
import type { ApiServerDeps } from '../ports.js';
import { createRestart, createUndo } from '../rollout/rollout-handlers.js';
import { planApply, planScale } from '../workload/spec-changes.js';
import { hasChanges, putWorkloadChange, type WorkloadChange } from '../workload/workload-change.js';

/** A change of a plan, validated as the RPC for this single change validates it. */
export type CheckedChange =
  | { readonly kind: 'workload'; readonly change: WorkloadChange }
  | {
      readonly kind: 'drain';
      readonly current: Stored<NodeRecord>;
      /** Undefined when the node is being drained already and the request changes nothing. */
      readonly change: NodeChange | undefined;
    };

/** The predicted outcome of the changes of a plan. */
export interface PlannedOutcome {
  readonly changes: readonly CheckedChange[];
  /** One plan for each affected workload, with all steps and placements. */
  readonly plans: readonly WorkloadPlan[];
}

/**
 * Checks the list of changes of a plan, without the state of the cluster.
 * @throws kind `invalid` for a change that is empty or has a request id, and for a second change of
 *   the same workload or node.
 */
export function validateChanges(changes: readonly PlannedChange[]): void {
  /** Index of the first change of each workload and node. */
  const indexBySubject = new Map<string, number>();
  const violations = changes.flatMap(({ change }, index): readonly Violation[] => {
    if (change.case === undefined)
      return [
        {
          field: `changes[${index}]`,
          message: 'is empty: set apply, scale, undo, restart or drain',
        },
      ];
    const field = `changes[${index}].${change.case}`;
    const subject =
      change.case === 'drain'
        ? `node ${change.value.nodeId}`
        : `workload ${resolveNamespace(change.value)}/${change.value.name}`;
    const earlier = indexBySubject.get(subject);
    indexBySubject.set(subject, earlier ?? index);
    const requestId = 'requestId' in change.value ? change.value.requestId : '';
    return [
      ...(requestId === ''
        ? []
        : [
            {
              field: `${field}.request_id`,
              message:
                'must be empty: the changes of a plan are made together; pass the id to ExecutePlan',
            },
          ]),
      ...(earlier === undefined
        ? []
        : [
            {
              field,
              message: `changes[${earlier}] is about the ${subject} too; a plan contains at most one change of each workload and node`,
            },
          ]),
    ];
  });
  if (violations.length > 0) throw new InvalidInputError(violations);
}

type CheckDeps = Pick<ApiServerDeps, 'explainImpossibleLimits' | 'placements' | 'dryRun' | 'clock'>;

/**
 * Validates every change as the RPC for this change does, and predicts their effects, each on top
 * of the changes before it.
 * @param createdAtMs - Creation time of the plan, wall-clock milliseconds. Used as the time of a
 *   restart, so that a later prediction gives the same spec.
 * @throws kind `invalid` with the violations of all changes, with the index of their change; other
 *   errors as the RPC of the change throws them.
 */
export function planChanges(
  deps: CheckDeps,
  view: ClusterView,
  changes: readonly PlannedChange[],
  createdAtMs: number,
): PlannedOutcome {
  const checkedChanges = collectViolations(changes, (planned) =>
    validateChange(deps, view, planned, createdAtMs),
  );
  const planner = deps.dryRun.createPlanner();
  const plans = checkedChanges.flatMap((checked): readonly WorkloadPlan[] => {
    if (checked.kind === 'drain')
      return planner.planDrain(checked.change?.after ?? checked.current.value);
    const { namespace, name, current, spec } = checked.change;
    return [planner.planChange({ namespace, name, current: current?.value, spec })];
  });
  return { changes: checkedChanges, plans };
}

/**
 * Validates all changes and reports all violations together.
 * @throws kind `invalid` with the path of each violation below its change.
 */
function collectViolations<Checked>(
  changes: readonly PlannedChange[],
  check: (planned: PlannedChange) => Checked,
): readonly Checked[] {
  const violations: Violation[] = [];
  const checked = changes.flatMap((planned, index) => {
    try {
      return [check(planned)];
    } catch (reason) {
      if (!(reason instanceof InvalidInputError)) throw reason;
      const place = `changes[${index}].${planned.change.case ?? ''}`;
      violations.push(
        ...reason.violations.map(({ field, message }) => ({ field: `${place}.${field}`, message })),
      );
      return [];
    }
  });
  if (violations.length > 0) throw new InvalidInputError(violations);
  return checked;
}

function validateChange(
  deps: CheckDeps,
  view: ClusterView,
  { change }: PlannedChange,
  createdAtMs: number,
): CheckedChange {
  switch (change.case) {
    case 'apply':
      return { kind: 'workload', change: planApply(deps, view, change.value) };
    case 'scale':
      return { kind: 'workload', change: planScale(view, change.value) };
    case 'undo':
      return { kind: 'workload', change: createUndo(view, change.value) };
    case 'restart':
      return { kind: 'workload', change: createRestart(view, change.value, createdAtMs) };
    case 'drain': {
      const current = requireNode(view, change.value.nodeId);
      const replicaCount = deps.placements.getAllocated(current.value.id).replicas;
      return {
        kind: 'drain',
        current,
        change: startDrain(current.value, change.value, {
          nowMs: deps.clock.wallTime(),
          replicaCount,
        }),
      };
    }
    case undefined:
      throw new InvalidInputError([{ field: 'changes', message: 'names no change' }]);
  }
}

/** The records that the execution of a plan writes. */
export interface WrittenChanges {
  readonly workloads: readonly WorkloadRecord[];
  readonly nodes: readonly NodeRecord[];
}

/**
 * Adds the records and events of all changes of a plan to a transaction, as the RPCs for these
 * changes would. Changes without effect add nothing.
 */
export function putChanges(
  deps: Pick<ApiServerDeps, 'clock' | 'random'>,
  view: ClusterView,
  transaction: Transaction,
  changes: readonly CheckedChange[],
  requestId: string,
): WrittenChanges {
  const workloads: WorkloadRecord[] = [];
  const nodes: NodeRecord[] = [];
  for (const checked of changes) {
    if (checked.kind === 'drain') {
      const { current, change } = checked;
      if (change !== undefined) putNodeChange(transaction, current, change, requestId);
      nodes.push(change?.after ?? current.value);
    } else if (hasChanges(checked.change)) {
      workloads.push(putWorkloadChange(deps, view, transaction, checked.change, requestId));
    }
  }
  return { workloads, nodes };
}

/**
 * Conditions that a plan adds to its transaction. The store allows 100; the leadership, the plan
 * record and the request id need the rest.
 */
const MAX_COMPARES = 95;

/**
 * Makes a transaction fail when a record that the plans depend on has changed since `view`: each
 * workload with its control record and readiness guard, and the nodes of the placements. Nodes
 * beyond {@link MAX_COMPARES} are omitted; the scheduler notices a change of such a node when it
 * places the replica.
 * @throws kind `exhausted` when the plans affect more workloads than one transaction can compare.
 */
export function requireUnchanged(
  transaction: Transaction,
  view: ClusterView,
  plans: readonly WorkloadPlan[],
): void {
  const workloads = plans.flatMap(
    ({ namespace, name }) => view.workloadByName(namespace, name) ?? [],
  );
  for (const workload of workloads) {
    const { uid } = workload.value;
    transaction
      .require('workload', uid, workload)
      .require('control', uid, view.control(uid) ?? 'absent');
    transaction.require('evidence', uid, view.readinessGuard(uid) ?? 'absent');
  }
  if (transaction.toCompares().length > MAX_COMPARES) {
    throw new CloudlessError(
      'exhausted',
      `the plan is about ${workloads.length} workloads, more than one transaction can compare; plan fewer changes at a time, or drain without a plan`,
    );
  }
  const nodeIds = new Set(
    plans.flatMap(({ placements }) => placements.map(({ nodeId }) => nodeId)),
  );
  for (const nodeId of nodeIds) {
    if (transaction.toCompares().length < MAX_COMPARES)
      transaction.require('node', nodeId, view.node(nodeId) ?? 'absent');
  }
}
