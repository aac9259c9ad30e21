import {
  WorkloadPlan_Action as Action,
  resolveNamespace,
  type NodePlan,
  type PlannedChange,
  type WorkloadPlan,
} from '@cloudless/api';
import { InvalidInputError, toSnakeCase, type Violation } from '@cloudless/base';
import type { ClusterView, NodeSubject } from '@cloudless/cluster-state';
import type { AdmittedChange } from '../policy/policy-admission.js';
import type { DryRunPlannerPort, Prediction } from '../ports.js';
import { withRolloutUpdate } from '../rollout/rollout-update.js';
import {
  validateChange,
  type CheckDeps,
  type CheckedChange,
  type ValidationContext,
} from './checked-change.js';
import { createNodePlan } from './node-plan.js';

/** The predicted outcome of the changes of a plan. */
export interface PlannedOutcome {
  readonly changes: readonly CheckedChange[];
  /** One plan for each affected workload, with all steps and placements. */
  readonly plans: readonly WorkloadPlan[];
  /** Violations of policies by the plan of the workload. */
  readonly admitted: ReadonlyMap<WorkloadPlan, AdmittedChange>;
  /** One plan for each node that a change names. */
  readonly nodes: readonly NodePlan[];
  /** Revision of the state that the prediction started from. */
  readonly revision: bigint;
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
          message: 'is empty: set one change, such as apply, scale, delete or drain',
        },
      ];
    const field = `changes[${index}].${toSnakeCase(change.case)}`;
    const subject = describeSubject(change);
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

type PlannedRequest = Exclude<PlannedChange['change'], { case: undefined }>;

/** Returns the object of a change: `workload default/web`, `node node-1`. */
function describeSubject({ value }: PlannedRequest): string {
  return 'nodeId' in value
    ? `node ${value.nodeId}`
    : `workload ${resolveNamespace(value)}/${value.name}`;
}

/**
 * Validates every change as the RPC for this change does, and returns the prediction of their
 * effects. The changes of nodes take effect before the first prediction, because a plan makes all
 * changes together: no replica moves to a node that another change of the plan drains. The changes
 * of workloads are predicted one on top of the other.
 * @throws kind `invalid` with the violations of all changes, with the index of their change; other
 *   errors as the RPC of the change throws them.
 */
export function planChanges(
  deps: CheckDeps,
  view: ClusterView,
  changes: readonly PlannedChange[],
  context: ValidationContext,
): Prediction<PlannedOutcome> {
  return function* predict(planner) {
    const checkedChanges = collectViolations(changes, (planned) =>
      validateChange(deps, view, planned, context),
    );
    for (const checked of checkedChanges) {
      const subject = toNodeSubject(checked);
      if (subject !== undefined) planner.putNode(subject);
    }
    // The predictions may pause, so all that reads the state is before them.
    const { revision } = view;
    const nodes = checkedChanges.flatMap((checked) => createNodePlan(deps, checked) ?? []);
    const plans: WorkloadPlan[] = [];
    const admitted = new Map<WorkloadPlan, AdmittedChange>();
    for (const checked of checkedChanges) {
      const predicted = yield* predictChange(planner, checked);
      plans.push(...predicted);
      const [plan] = predicted;
      if (checked.kind === 'workload' && checked.admitted !== undefined && plan !== undefined)
        admitted.set(plan, checked.admitted);
    }
    return { changes: checkedChanges, plans, admitted, nodes, revision };
  };
}

/** Returns the node as a change leaves it; undefined for a change of a workload. */
function toNodeSubject(checked: CheckedChange): NodeSubject | undefined {
  if (checked.kind === 'removal') return { kind: 'removed', nodeId: checked.current.value.id };
  if (checked.kind !== 'node') return undefined;
  const node = checked.change?.after ?? checked.current.value;
  return { kind: node.lossConfirmed ? 'lost' : 'changed', node };
}

function* predictChange(
  planner: DryRunPlannerPort,
  checked: CheckedChange,
): Generator<void, readonly WorkloadPlan[]> {
  switch (checked.kind) {
    case 'workload': {
      const { namespace, name, current, spec } = checked.change;
      return [yield* planner.planChange({ namespace, name, current: current?.value, spec })];
    }
    case 'deletion':
      return [yield* planner.planDeletion(checked.change.after ?? checked.change.current.value)];
    case 'rollout': {
      const { records, update, action } = checked;
      const control = records.control.value;
      return [
        yield* planner.planRollout(
          update === undefined ? Action.NOTHING : action,
          records.workload.value,
          update === undefined ? control : withRolloutUpdate(control, update),
        ),
      ];
    }
    case 'node':
    case 'removal':
      return yield* planner.planMoves(checked.current.value.id);
  }
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
      const place = `changes[${index}].${toSnakeCase(planned.change.case ?? '')}`;
      violations.push(
        ...reason.violations.map(({ field, message }) => ({ field: `${place}.${field}`, message })),
      );
      return [];
    }
  });
  if (violations.length > 0) throw new InvalidInputError(violations);
  return checked;
}
