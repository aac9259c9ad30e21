import { create, equals } from '@bufbuild/protobuf';
import {
  ExplainWorkloadResponseSchema,
  FieldChangeSchema,
  NodeVerdictSchema,
  PlannedPlacementSchema,
  PlannedStepSchema,
  ScoreTermsSchema,
  WorkloadPlanSchema,
  WorkloadPlan_Action as Action,
  WorkloadSpecSchema,
  diffSpecs,
  toTemplate,
  withDefaults,
  type ExplainWorkloadResponse,
  type WorkloadPlan,
  type WorkloadSpec,
} from '@cloudless/api';
import { WorkloadRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import { toReplicaId, toWorkloadId, type Clock } from '@cloudless/base';
import { type ClusterState } from '@cloudless/cluster-state';
import { impossibleLimits, layOut, type LaidOut } from '@cloudless/rollout';
import { describeReasons, type Cluster, type PlacementReason } from '@cloudless/scheduler';
import { effectiveNode } from './effective-node.js';
import type { NodeDirectory } from './node-directory.js';
import type { Readiness } from './readiness.js';
import { toRolloutInput } from './rollout-input.js';
import { toPlacementRequest } from './scheduler-input.js';
import { stillWanted } from './workload-pass.js';
import type { WorkloadReader } from './workload-reader.js';

/** What {@link Planner} reads. */
export interface PlannerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly readiness: Readiness;
  readonly reader: WorkloadReader;
  readonly cluster: Cluster;
  readonly clock: Clock;
}

/** What a plan is about: the workload as it is (absent when it would be created) and the spec it would have. */
export interface PlanSubject {
  readonly namespace: string;
  readonly name: string;
  readonly current: WorkloadRecord | undefined;
  readonly spec: WorkloadSpec;
}

/** A plan shows this many steps and placements; the figures cover all of them. */
const MAX_SHOWN = 200;

/** Says what would happen, and why what is there is where it is. Changes nothing. */
export class Planner {
  constructor(private readonly deps: PlannerDeps) {}

  /** The difference, the moves in order with the ready count each leaves, where new replicas would go, and what would not fit. */
  plan(subject: PlanSubject): WorkloadPlan {
    const { current, spec } = subject;
    const changes = diffSpecs(current?.spec ?? create(WorkloadSpecSchema), spec);
    const newVersion =
      current === undefined ||
      !equals(WorkloadSpecSchema, toTemplate(current.spec ?? create(WorkloadSpecSchema)), toTemplate(spec));
    const planned = this.plannedRecord(subject, newVersion);
    const { laid, limits } = this.lay(planned);
    const { placements, unplaced, reasons } = this.placeAhead(planned, laid);
    return create(WorkloadPlanSchema, {
      action: current === undefined ? Action.CREATE : changes.length > 0 ? Action.UPDATE : Action.NOTHING,
      changes: changes.map((change) =>
        create(FieldChangeSchema, {
          path: change.path,
          before: change.before === undefined ? '' : JSON.stringify(change.before),
          after: change.after === undefined ? '' : JSON.stringify(change.after),
        }),
      ),
      newVersion,
      generation: current?.generation ?? 0n,
      placements: placements.slice(0, MAX_SHOWN).map((nodeId) => create(PlannedPlacementSchema, { ...nodeId })),
      unplaced,
      unplacedReason: unplaced === 0 ? '' : describeReasons(reasons),
      steps: this.describeSteps(planned, laid).slice(0, MAX_SHOWN),
      lowestReady: laid.lowestReady,
      minAvailable: limits.minAvailable,
      highestLive: laid.highestLive,
      warnings: [
        ...(laid.verdict.kind === 'stuck' ? [laid.verdict.reason.text] : []),
        ...(unplaced > 0
          ? [`${unplaced} ${unplaced === 1 ? 'replica' : 'replicas'} would find no node: ${describeReasons(reasons)}`]
          : []),
      ],
    });
  }

  /** How each node looks to one more replica of the workload. */
  explain(record: WorkloadRecord): ExplainWorkloadResponse {
    const { cluster, reader, state } = this.deps;
    const template = toTemplate(record.spec ?? create(WorkloadSpecSchema));
    const verdicts = cluster.explain(toPlacementRequest(record, template));
    const shown = reader.read(record, true);
    const fitting = verdicts.filter(({ fits }) => fits).length;
    const status = shown.status;
    return create(ExplainWorkloadResponseSchema, {
      namespace: record.namespace,
      name: record.name,
      summary:
        `${status?.readyReplicas ?? 0} of ${status?.desiredReplicas ?? 0} replicas are ready; ` +
        `${fitting} of ${verdicts.length} nodes would take one more` +
        (status?.reason ? `; ${status.reason}` : ''),
      nodes: verdicts.map((verdict) => {
        const node = state.view().node(verdict.nodeId)?.value;
        const zone = node === undefined ? '' : effectiveNode(node).zone;
        const { nodeId, fits, score, terms } = verdict;
        return create(NodeVerdictSchema, {
          nodeId,
          zone,
          fits,
          reason: verdict.fits ? '' : verdict.detail,
          score,
          terms: create(ScoreTermsSchema, terms),
        });
      }),
      replicas: status?.replicas ?? [],
    });
  }

  private plannedRecord({ namespace, name, current, spec }: PlanSubject, newVersion: boolean): WorkloadRecord {
    return create(WorkloadRecordSchema, {
      uid: current?.uid ?? 'planned',
      namespace,
      name,
      spec,
      version: (current?.version ?? 0) + (newVersion ? 1 : 0),
    });
  }

  private lay(planned: WorkloadRecord): { readonly laid: LaidOut; readonly limits: { readonly minAvailable: number } } {
    const view = this.deps.state.view();
    const replicas = [...view.replicasOf(planned.uid)].map(({ value }) => value);
    const desired = stillWanted(planned, replicas, withDefaults(planned.spec ?? create(WorkloadSpecSchema)).replicas ?? 0);
    const { observed } = toRolloutInput({ ...this.deps, view }, planned, replicas, desired);
    return { laid: layOut(observed), limits: observed };
  }

  /** Takes the laid-out steps on a copy of the scheduler's model, so that room is freed and taken in the real order. */
  private placeAhead(planned: WorkloadRecord, laid: LaidOut) {
    const cluster = this.deps.cluster.clone();
    const request = toPlacementRequest(planned, toTemplate(planned.spec ?? create(WorkloadSpecSchema)));
    const placements: { nodeId: string; zone: string; score: number }[] = [];
    let unplaced = 0;
    let reasons: readonly PlacementReason[] = [];
    for (const [index, { step }] of laid.steps.entries()) {
      if (step.kind === 'stopReplica') {
        cluster.release(step.replicaId);
        continue;
      }
      const placement = cluster.place(request, 1)[0];
      if (placement === undefined || !placement.placed) {
        unplaced += 1;
        reasons = placement?.reasons ?? [];
        continue;
      }
      const node = this.deps.state.view().node(placement.nodeId)?.value;
      placements.push({
        nodeId: placement.nodeId,
        zone: node === undefined ? '' : effectiveNode(node).zone,
        score: placement.score,
      });
      cluster.reserve({
        replicaId: toReplicaId(`planned-${index}`),
        nodeId: placement.nodeId,
        workloadId: toWorkloadId(planned.uid),
        namespace: planned.namespace,
        resources: request.resources,
        ...(request.labels === undefined ? {} : { labels: request.labels }),
        ...(request.workloadAntiAffinity === undefined ? {} : { workloadAntiAffinity: request.workloadAntiAffinity }),
      });
    }
    return { placements, unplaced, reasons };
  }

  private describeSteps(planned: WorkloadRecord, laid: LaidOut) {
    const versionOf = (replicaId: string): number => this.deps.state.view().replica(replicaId)?.value.version ?? planned.version;
    return laid.steps.map(({ step, ready, live }) =>
      create(PlannedStepSchema, {
        description:
          step.kind === 'createReplica'
            ? `create 1 of version ${step.version}`
            : `stop 1 of version ${versionOf(step.replicaId)}`,
        ready,
        live,
      }),
    );
  }
}

/** Why the limits of a spec leave an update no move; undefined when there is one. */
export function impossibleLimitsOf(spec: WorkloadSpec): string | undefined {
  const { rollout, replicas } = withDefaults(spec);
  return impossibleLimits({
    desired: replicas ?? 0,
    ...(rollout?.maxSurge === undefined ? {} : { maxSurge: rollout.maxSurge }),
    ...(rollout?.maxUnavailable === undefined ? {} : { maxUnavailable: rollout.maxUnavailable }),
    ...(rollout?.minAvailable === undefined ? {} : { minAvailable: rollout.minAvailable }),
  });
}
