import { clone, create, equals } from '@bufbuild/protobuf';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  PolicyDeniedError,
  WorkloadSpecSchema,
  withDefaults,
  type WorkloadSpec,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import {
  POLICY_GUARD_KEY,
  type ClusterView,
  type EventInit,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { evaluatePolicies, formatViolation, type Verdict } from '@cloudless/policy';
import type { PolicySets } from './policy-sets.js';
import { presentViolation } from './policy-verdict.js';

/** A change of a workload that policies judge. */
export interface JudgedChange {
  readonly namespace: string;
  readonly name: string;
  /** Undefined when the change creates the workload. */
  readonly current: Stored<WorkloadRecord> | undefined;
  /** The new spec. */
  readonly spec: WorkloadSpec;
}

/** Longest message of an event about violations of AUDIT policies, characters. */
const MAX_MESSAGE = 2_000;

/**
 * Compares the changes of workloads with the policies. Every change that a user requests passes
 * {@link admit} where its records are written, and plans pass {@link check} when they are made.
 */
export class PolicyAdmission {
  /** The event about AUDIT policies of each transaction. A plan has one for all workloads. */
  private readonly events = new WeakMap<
    Transaction,
    { -readonly [Key in keyof EventInit]: EventInit[Key] }
  >();

  constructor(private readonly sets: PolicySets) {}

  /**
   * Checks a change.
   * @returns The verdict; undefined for a change that is never refused: only fewer replicas.
   * @throws {@link PolicyDeniedError} with all violations.
   */
  check(view: ClusterView, change: JudgedChange): Verdict | undefined {
    const { namespace, name, spec } = change;
    if (isReduction(change)) return undefined;
    const subject = { namespace, name, spec: withDefaults(spec) };
    const verdict = evaluatePolicies(this.sets.get(view), subject);
    if (verdict.decision === 'ALLOW') return verdict;
    throw new PolicyDeniedError({ namespace, name }, verdict.violations.map(presentViolation));
  }

  /**
   * Checks a change whose records are part of a transaction. The commit conflicts when a policy
   * changes meanwhile. Adds an event when AUDIT policies are violated.
   * @throws {@link PolicyDeniedError}.
   */
  admit(
    view: ClusterView,
    transaction: Transaction,
    change: JudgedChange,
    requestId: string,
  ): void {
    const verdict = this.check(view, change);
    if (verdict === undefined) return;
    transaction.require('policyguard', POLICY_GUARD_KEY, view.policyGuard() ?? 'absent');
    if (verdict.audit.length === 0) return;
    const { namespace, name } = change;
    const text = `workload ${namespace}/${name}: ${verdict.audit.map(formatViolation).join('; ')}`;
    const known = this.events.get(transaction);
    if (known !== undefined) {
      known.message = cut(`${known.message ?? ''}; ${text}`);
      known.namespace = known.namespace === namespace ? namespace : '';
      known.workload = '';
      return;
    }
    const event = {
      ...{ severity: Severity.WARNING, category: Category.SECURITY, reason: 'PolicyAudit' },
      ...{ namespace, workload: name, requestId },
      message: cut(`policies with the action AUDIT would deny ${text}`),
    };
    this.events.set(transaction, event);
    transaction.event(event);
  }
}

/** Returns true when a change only lowers the number of replicas, which policies never refuse. */
function isReduction({ current, spec }: JudgedChange): boolean {
  if (current === undefined) return false;
  const before = current.value.spec ?? create(WorkloadSpecSchema);
  if ((spec.replicas ?? 1) > (before.replicas ?? 1)) return false;
  const same = clone(WorkloadSpecSchema, spec);
  if (before.replicas === undefined) delete same.replicas;
  else same.replicas = before.replicas;
  return equals(WorkloadSpecSchema, before, same);
}

function cut(text: string): string {
  return text.length <= MAX_MESSAGE ? text : `${text.slice(0, MAX_MESSAGE)}…`;
}
