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
import { evaluatePolicies, formatViolation, type PolicyViolation } from '@cloudless/policy';
import type { JudgedCall } from './policy-override.js';
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

/** What the policies decide about a change that may be made. */
export interface AdmittedChange {
  /** Violations of AUDIT policies. */
  readonly audit: readonly PolicyViolation[];
  /** Violations for which policies deny the change, which an override lets through. */
  readonly overridden: readonly PolicyViolation[];
}

/** Longest message of an event about violations, characters. */
const MAX_MESSAGE = 2_000;

/** An event that further workloads of the same transaction are added to. */
type OpenEvent = { -readonly [Key in keyof EventInit]: EventInit[Key] };

/**
 * Compares the changes of workloads with the policies. Every change that a user requests passes
 * {@link admit} where its records are written, and plans pass {@link check} when they are made.
 */
export class PolicyAdmission {
  /** The events of each transaction, by reason. A plan has one of each for all workloads. */
  private readonly events = new WeakMap<Transaction, Map<string, OpenEvent>>();

  constructor(private readonly sets: PolicySets) {}

  /**
   * Checks a change.
   * @param overrideReason - The reason for which the caller overrides policies, who has been checked
   *   by `requireOverridePermission`. Undefined: policies decide.
   * @returns The violations; undefined for a change that is never refused: only fewer replicas.
   * @throws {@link PolicyDeniedError} with all violations.
   */
  check(
    view: ClusterView,
    change: JudgedChange,
    overrideReason: string | undefined,
  ): AdmittedChange | undefined {
    const { namespace, name, spec } = change;
    if (isReduction(change)) return undefined;
    const subject = { namespace, name, spec: withDefaults(spec) };
    const { decision, violations, audit } = evaluatePolicies(this.sets.get(view), subject);
    if (decision === 'ALLOW') return { audit, overridden: [] };
    if (overrideReason !== undefined) return { audit, overridden: violations };
    throw new PolicyDeniedError({ namespace, name }, violations.map(presentViolation));
  }

  /**
   * Checks a change whose records are part of a transaction. The commit conflicts when a policy
   * changes meanwhile. Adds an event when AUDIT policies are violated, and another when policies are
   * overridden.
   * @throws {@link PolicyDeniedError}.
   */
  admit(
    view: ClusterView,
    transaction: Transaction,
    change: JudgedChange,
    { requestId, overrideReason }: JudgedCall,
  ): void {
    const admitted = this.check(view, change, overrideReason);
    if (admitted === undefined) return;
    transaction.require('policyguard', POLICY_GUARD_KEY, view.policyGuard() ?? 'absent');
    const { audit, overridden } = admitted;
    const place = `workload ${change.namespace}/${change.name}`;
    if (audit.length > 0)
      this.addEvent(transaction, change, requestId, {
        reason: 'PolicyAudit',
        begin: 'policies with the action AUDIT would deny ',
        text: `${place}: ${audit.map(formatViolation).join('; ')}`,
      });
    if (overridden.length > 0)
      this.addEvent(transaction, change, requestId, {
        reason: 'PolicyOverridden',
        begin: `policies were overridden (${JSON.stringify(overrideReason)}) that deny `,
        text: `${place}: ${listRules(overridden)}`,
      });
  }

  /** Adds an event, or adds the workload to the event that the transaction has already. */
  private addEvent(
    transaction: Transaction,
    { namespace, name }: JudgedChange,
    requestId: string,
    { reason, begin, text }: { readonly [Key in 'reason' | 'begin' | 'text']: string },
  ): void {
    const events = this.events.get(transaction) ?? new Map<string, OpenEvent>();
    this.events.set(transaction, events);
    const known = events.get(reason);
    if (known !== undefined) {
      known.message = cut(`${known.message ?? ''}; ${text}`);
      known.namespace = known.namespace === namespace ? namespace : '';
      known.workload = '';
      return;
    }
    const event = {
      ...{ severity: Severity.WARNING, category: Category.SECURITY, reason },
      ...{ namespace, workload: name, requestId },
      message: cut(begin + text),
    };
    events.set(reason, event);
    transaction.event(event);
  }
}

/** Returns the policies and rules of violations: `policy "a", rule "b" (spec.image)`. */
function listRules(violations: readonly PolicyViolation[]): string {
  return violations
    .map(({ policy, rule, field }) => `policy "${policy}", rule "${rule}" (${field})`)
    .join('; ');
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
