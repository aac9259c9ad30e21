import { clone, create } from '@bufbuild/protobuf';
import {
  DrainNodeRequestSchema,
  resolveNamespace,
  type SimulatedChange as ChangeMessage,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord, type WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, type Clock } from '@cloudless/base';
import {
  listReplicasHeldBy,
  toEffectiveNode,
  type ClusterView,
  type NodeSubject,
  type PlanSubject,
  type SimulatedChanges,
} from '@cloudless/cluster-state';
import { checkHostPorts } from '../network/host-port-conflicts.js';
import { startDrain } from '../node/drain.js';
import { requireNode } from '../node/node-change.js';
import type { ApiServerDeps } from '../ports.js';
import { planApply, planScale } from '../workload/spec-changes.js';
import type { WorkloadChange } from '../workload/workload-change.js';
import { planDeletion } from '../workload/workload-deletion.js';
import { createSimulatedNodes } from './simulated-nodes.js';

export interface ResolveDeps extends Pick<ApiServerDeps, 'explainImpossibleLimits'> {
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** Most nodes that all changes of a simulation add together. */
const MAX_ADDED_NODES = 5_000;
/** Most zones that an error names. */
const MAX_NAMED_ZONES = 10;

/**
 * Validates the changes of a simulation as the RPCs for these changes do, and converts them to
 * records.
 * @throws kind `invalid` with the path of each violation, also for two changes of one workload or
 *   node; `notFound` for an unknown node, zone or workload; other errors as the RPC of the change
 *   throws them.
 */
export function resolveSimulatedChanges(
  deps: ResolveDeps,
  view: ClusterView,
  changes: readonly ChangeMessage[],
): SimulatedChanges {
  const resolver = new ChangeResolver(deps, view);
  for (const [index, { change }] of changes.entries()) {
    const place = `changes[${index}]`;
    try {
      resolver.add(change, place);
    } catch (reason) {
      if (!(reason instanceof InvalidInputError)) throw reason;
      throw new InvalidInputError(
        reason.violations.map(({ field, message }) => ({
          field: field === '' ? place : `${place}.${field}`,
          message,
        })),
      );
    }
  }
  return resolver.finish();
}

/** Collects the resolved changes, and finds two changes of one object. */
class ChangeResolver {
  private readonly nodes: NodeSubject[] = [];
  private readonly addedNodes: NodeRecord[] = [];
  private readonly workloads: PlanSubject[] = [];
  private readonly deletions: WorkloadRecord[] = [];
  /** Place of the change of each workload and node. */
  private readonly places = new Map<string, string>();
  private readonly nodeIds: Set<string>;

  constructor(
    private readonly deps: ResolveDeps,
    private readonly view: ClusterView,
  ) {
    this.nodeIds = new Set([...view.nodes()].map(({ value }) => value.id));
  }

  add(change: ChangeMessage['change'], place: string): void {
    switch (change.case) {
      case 'apply':
        checkNoOverride(change.value);
        return this.addWorkload(planApply(this.deps, this.view, change.value), place);
      case 'scale':
        checkRequestId(change.value);
        checkNoOverride(change.value);
        return this.addWorkload(planScale(this.view, change.value), place);
      case 'delete': {
        checkRequestId(change.value);
        const { current, after } = planDeletion(
          this.view,
          change.value,
          this.deps.clock.wallTime(),
        );
        this.claim(`workload ${formatName(current.value)}`, place);
        this.deletions.push(after ?? current.value);
        return;
      }
      case 'loseNode':
        return this.loseNode(requireNode(this.view, change.value).value, place);
      case 'loseZone':
        for (const node of this.requireZone(change.value)) this.loseNode(node, place);
        return;
      case 'drainNode':
        return this.drainNode(requireNode(this.view, change.value).value, place);
      case 'addNodes': {
        const nowMs = this.deps.clock.wallTime();
        this.addedNodes.push(...createSimulatedNodes(this.view, change.value, this.nodeIds, nowMs));
        if (this.addedNodes.length <= MAX_ADDED_NODES) return;
        throw new InvalidInputError([
          { field: 'add_nodes.count', message: `more than ${MAX_ADDED_NODES} nodes are added` },
        ]);
      }
      case undefined:
        throw new InvalidInputError([
          { field: '', message: 'is empty: set one change, such as lose_node, scale or apply' },
        ]);
    }
  }

  finish(): SimulatedChanges {
    const { nodes, addedNodes, workloads, deletions } = this;
    return { nodes, addedNodes, workloads, deletions };
  }

  private addWorkload(change: WorkloadChange, place: string): void {
    const { namespace, name, current, spec } = change;
    checkHostPorts(this.view, change);
    this.claim(`workload ${namespace}/${name}`, place);
    this.workloads.push({ namespace, name, current: current?.value, spec });
  }

  private loseNode(node: NodeRecord, place: string): void {
    this.claim(`node ${node.id}`, place);
    const lost = Object.assign(clone(NodeRecordSchema, node), { lost: true, lossConfirmed: true });
    this.nodes.push({ kind: 'lost', node: lost });
  }

  private drainNode(node: NodeRecord, place: string): void {
    this.claim(`node ${node.id}`, place);
    const facts = {
      nowMs: this.deps.clock.wallTime(),
      replicaCount: listReplicasHeldBy(this.view, node.id).length,
    };
    const change = startDrain(node, create(DrainNodeRequestSchema, { nodeId: node.id }), facts);
    this.nodes.push({ kind: 'changed', node: change?.after ?? node });
  }

  /** @throws kind `notFound` for a zone without nodes, naming the zones of the cluster. */
  private requireZone(name: string): readonly NodeRecord[] {
    const nodes = [...this.view.nodes()].map(({ value }) => value);
    const found = nodes.filter((node) => listZoneNames(node).includes(name));
    if (found.length > 0) return found;
    const zones = [...new Set(nodes.map((node) => toEffectiveNode(node).zone))]
      .filter((zone) => zone !== '')
      .sort();
    const more = zones.length > MAX_NAMED_ZONES ? ', …' : '';
    const known =
      zones.length === 0
        ? 'no node of this cluster has a zone'
        : `zones of this cluster: ${zones.slice(0, MAX_NAMED_ZONES).join(', ')}${more}`;
    throw new CloudlessError('notFound', `zone "${name}" has no nodes; ${known}`);
  }

  /** @throws kind `invalid` when an earlier change is about the same object. */
  private claim(subject: string, place: string): void {
    const earlier = this.places.get(subject);
    this.places.set(subject, place);
    if (earlier === undefined) return;
    throw new InvalidInputError([
      {
        field: '',
        message: `is about ${subject}, as ${earlier} is; a simulation has at most one change of each workload and node`,
      },
    ]);
  }
}

function listZoneNames(node: NodeRecord): readonly string[] {
  const { region, zone } = toEffectiveNode(node);
  return zone === '' ? [] : [zone, `${region}/${zone}`];
}

/** A simulation is not compared with policies. */
function checkNoOverride({
  policyOverride,
}: {
  readonly policyOverride?: object | undefined;
}): void {
  if (policyOverride === undefined) return;
  throw new InvalidInputError([
    { field: 'policy_override', message: 'must be absent: policies do not judge a simulation' },
  ]);
}

function checkRequestId({ requestId }: { readonly requestId: string }): void {
  if (requestId === '') return;
  throw new InvalidInputError([
    { field: 'request_id', message: 'must be empty: a simulation changes nothing' },
  ]);
}

function formatName(workload: WorkloadRecord): string {
  return `${resolveNamespace(workload)}/${workload.name}`;
}
