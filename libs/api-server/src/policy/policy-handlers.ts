import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  DeletePolicyResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  PolicyService,
  PolicySpecSchema,
  updateMessage,
  type CreatePolicyRequest,
  type DeletePolicyRequest,
  type DeletePolicyResponse,
  type Policy,
  type PolicySpec,
  type UpdatePolicyRequest,
} from '@cloudless/api';
import {
  PolicyGuardRecordSchema,
  PolicyRecordSchema,
  type PolicyRecord,
} from '@cloudless/api/store';
import { CloudlessError, randomHex } from '@cloudless/base';
import {
  POLICY_GUARD_KEY,
  type ClusterView,
  type EventInit,
  type Transaction,
} from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import { compileSpec, countExpressions } from './policy-input.js';
import {
  getPolicySpec,
  presentPolicy,
  requireExpectedPolicy,
  requirePolicy,
} from './policy-lookup.js';

const calls = PolicyService.method;

/** Random bytes of the uid of a policy. */
const UID_BYTES = 8;
/** Stored policies at most. Each change of a workload is compared with all of them. */
export const MAX_POLICIES = 256;
/**
 * Rules of type EXPRESSION at most, in all policies. Each may take as long as its budget of steps
 * permits, and no other call is served meanwhile.
 */
export const MAX_EXPRESSIONS = 64;
/** Changes of policies run one at a time: each counts all policies. */
const SUBJECT = 'the policies';

/** Handlers of the calls of PolicyService that change policies. */
export class PolicyHandlers {
  constructor(private readonly deps: MutationDeps) {}

  createPolicy(request: CreatePolicyRequest, entry: AuditEntry): Promise<Policy> {
    const { name, requestId } = request;
    const spec = checkSpec(name, getPolicySpec(request));
    return runIdempotent(this.deps, calls.createPolicy, toCall(request, entry), (view) => {
      if (view.policy(name) !== undefined) {
        const message = `policy "${name}" already exists; update it, or choose another name`;
        throw new CloudlessError('exists', message);
      }
      const { clock, random, state } = this.deps;
      const record = create(PolicyRecordSchema, {
        ...{ name, spec, generation: 1n },
        uid: randomHex(random, UID_BYTES),
        createdAt: timestampFromMs(clock.wallTime()),
      });
      checkLimits(view, record);
      const transaction = putGuard(view, state.transaction())
        .require('policy', name, 'absent')
        .put('policy', name, record)
        .event(createPolicyEvent(name, requestId, 'PolicyCreated', 'was created'));
      return { response: presentPolicy(record), transaction };
    });
  }

  updatePolicy(request: UpdatePolicyRequest, entry: AuditEntry): Promise<Policy> {
    const { name, requestId } = request;
    return runIdempotent(this.deps, calls.updatePolicy, toCall(request, entry), (view) => {
      const current = requireExpectedPolicy(view, request);
      const before = getPolicySpec(current.value);
      const patch = getPolicySpec(request);
      const merged = updateMessage(PolicySpecSchema, before, patch, request.updateMask?.paths);
      const spec = checkSpec(name, merged);
      if (equals(PolicySpecSchema, before, spec)) return { response: presentPolicy(current.value) };
      const next = clone(PolicyRecordSchema, current.value);
      next.spec = spec;
      next.generation += 1n;
      checkLimits(view, next);
      const text = `has new settings (generation ${next.generation})`;
      const transaction = putGuard(view, this.deps.state.transaction())
        .require('policy', name, current)
        .put('policy', name, next)
        .event(createPolicyEvent(name, requestId, 'PolicyUpdated', text));
      return { response: presentPolicy(next), transaction };
    });
  }

  /** Deletes a policy. A repeated call with another request id fails with NOT_FOUND. */
  deletePolicy(request: DeletePolicyRequest, entry: AuditEntry): Promise<DeletePolicyResponse> {
    const { name, requestId } = request;
    return runIdempotent(this.deps, calls.deletePolicy, toCall(request, entry), (view) => {
      const current = requirePolicy(view, name);
      const transaction = putGuard(view, this.deps.state.transaction())
        .require('policy', name, current)
        .delete('policy', name)
        .event(createPolicyEvent(name, requestId, 'PolicyDeleted', 'was deleted'));
      return { response: create(DeletePolicyResponseSchema), transaction };
    });
  }
}

function toCall<Request>(request: Request, entry: AuditEntry) {
  return { request, entry, subject: SUBJECT };
}

/**
 * Checks a spec.
 * @returns The spec with all defaults.
 * @throws the errors of {@link compileSpec}.
 */
function checkSpec(name: string, spec: PolicySpec): PolicySpec {
  compileSpec(name, spec);
  const complete = clone(PolicySpecSchema, spec);
  complete.enabled ??= true;
  return complete;
}

/**
 * Checks the number of policies and of expressions, with the new or changed policy.
 * @throws kind `exhausted`, naming the limit.
 */
function checkLimits(view: ClusterView, changed: PolicyRecord): void {
  let policies = 1;
  let expressions = countExpressions(getPolicySpec(changed));
  const added = expressions;
  for (const { value } of view.policies()) {
    if (value.name === changed.name) continue;
    policies += 1;
    expressions += countExpressions(getPolicySpec(value));
  }
  if (policies > MAX_POLICIES) {
    const message = `a cluster may have at most ${MAX_POLICIES} policies; delete one, or add the rules to another policy`;
    throw new CloudlessError('exhausted', message);
  }
  if (added === 0 || expressions <= MAX_EXPRESSIONS) return;
  const message = `with policy "${changed.name}" there would be ${expressions} rules of type EXPRESSION; all policies together may have at most ${MAX_EXPRESSIONS}; use rules of other types, or join expressions`;
  throw new CloudlessError('exhausted', message);
}

/** Makes the commit conflict with every other change of a policy. */
function putGuard(view: ClusterView, transaction: Transaction): Transaction {
  const guard = view.policyGuard();
  const changes = (guard?.value.changes ?? 0n) + 1n;
  return transaction
    .require('policyguard', POLICY_GUARD_KEY, guard ?? 'absent')
    .put('policyguard', POLICY_GUARD_KEY, create(PolicyGuardRecordSchema, { changes }));
}

function createPolicyEvent(
  name: string,
  requestId: string,
  reason: string,
  text: string,
): EventInit {
  return {
    ...{ severity: Severity.INFO, category: Category.SECURITY, requestId, reason },
    message: `policy ${name} ${text}`,
  };
}
