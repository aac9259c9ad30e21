import type { NodeId, WorkloadId } from '@cloudless/base';
import { toLabelMap, type LabelMap, type Labels } from '../input/labels.js';
import type { WorkloadTerm } from '../input/request.js';
import type { Claim } from './claim.js';
import type { DomainCounts } from './domain-counts.js';
import type { WorkloadCounts } from './workload-counts.js';

/** Replicas with the same workload, labels and anti-affinity. */
export interface ReplicaGroup {
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  readonly labels: LabelMap;
  /**
   * Required anti-affinity terms, which exclude matching replicas from the domains of this group.
   */
  readonly repels: readonly WorkloadTerm[];
  /** Replica counts by node. Contains no entry for nodes without replicas of the group. */
  readonly perNode: ReadonlyMap<NodeId, ReplicaCount>;
}

/** Number of replicas of a group on a node. */
export interface ReplicaCount {
  readonly staying: number;
  readonly leaving: number;
}

/** What identifies a group, and is read from a request or a reservation. */
export interface GroupFields {
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  readonly labels?: Labels;
  readonly workloadAntiAffinity?: readonly WorkloadTerm[];
}

/** A workload that has groups. */
export interface GroupedWorkload {
  readonly id: WorkloadId;
  readonly groups: LedgerGroup[];
  /** Counts that decisions about the workload read; absent while nobody asks. */
  counts: WorkloadCounts | undefined;
}

const NO_TERMS: readonly WorkloadTerm[] = [];
/** Text of {@link NO_TERMS}. */
const NO_REPELS = '[]';

/** A group as the ledger holds it. */
export class LedgerGroup {
  readonly namespace: string;
  readonly labels: LabelMap;
  readonly repels: readonly WorkloadTerm[];
  /** First reservation of the group, -1 without one. */
  first = -1;
  /** Reservations and prepared requests that name the group. The ledger forgets a group at 0. */
  holders = 0;
  /** Claim of the newest reservation, which the next one often equals. */
  claim: Claim | undefined;
  /** Counts of terms that match the group, of replicas that are not leaving. */
  stayingCounts: readonly DomainCounts[] = [];
  /** Counts of terms that match the group, of all replicas. */
  allCounts: readonly DomainCounts[] = [];
  /** Counts of the group's own terms in `repels`. */
  repelCounts: readonly DomainCounts[] = [];
  private readonly repelKey: string;

  constructor(
    readonly index: number,
    readonly workload: GroupedWorkload,
    fields: GroupFields,
  ) {
    this.namespace = fields.namespace;
    this.labels = toLabelMap(fields.labels);
    this.repelKey = toRepelKey(fields.workloadAntiAffinity);
    this.repels =
      this.repelKey === NO_REPELS ? NO_TERMS : (JSON.parse(this.repelKey) as WorkloadTerm[]);
  }

  /** Returns the same group in a copy of the ledger, held by its reservations only. */
  copyFor(workload: GroupedWorkload, reservations: number): LedgerGroup {
    const { index, namespace, labels, repels, first, claim } = this;
    const fields = {
      workloadId: workload.id,
      namespace,
      labels: Object.fromEntries(labels),
      workloadAntiAffinity: repels,
    };
    const copy = new LedgerGroup(index, workload, fields);
    copy.first = first;
    copy.holders = reservations;
    copy.claim = claim;
    return copy;
  }

  /** Returns true when the fields name this group. */
  isNamedBy(fields: GroupFields): boolean {
    return (
      this.namespace === fields.namespace &&
      haveEqualLabels(this.labels, fields.labels ?? {}) &&
      this.repelKey === toRepelKey(fields.workloadAntiAffinity)
    );
  }
}

function haveEqualLabels(map: LabelMap, labels: Labels): boolean {
  const keys = Object.keys(labels);
  return keys.length === map.size && keys.every((key) => map.get(key) === labels[key]);
}

function toRepelKey(terms: readonly WorkloadTerm[] = NO_TERMS): string {
  if (terms.length === 0) return NO_REPELS;
  return JSON.stringify(terms.filter(({ mode }) => mode === 'required'));
}
