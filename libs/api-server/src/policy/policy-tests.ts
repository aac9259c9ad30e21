import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  PolicyService,
  TestPolicyResponseSchema,
  checkSpec,
  paginateIndex,
  resolveNamespace,
  withDefaults,
  type Policy,
  type TestPolicyRequest,
  type TestPolicyResponse,
  type WorkloadSpec,
} from '@cloudless/api';
import { InvalidInputError, type Violation } from '@cloudless/base';
import { toNameKeyId, type ClusterView } from '@cloudless/cluster-state';
import { evaluatePolicies, type CompiledPolicy, type PolicySet } from '@cloudless/policy';
import { CallAccess } from '../access/call-access.js';
import { getSpec, requireWorkload } from '../lookup.js';
import type { ReadDeps } from '../ports.js';
import { listWorkloadsAfter } from '../workload/workloads-by-name.js';
import { compileSpec, countExpressions } from './policy-input.js';
import { MAX_EXPRESSIONS } from './policy-handlers.js';
import { getPolicySpec } from './policy-lookup.js';
import type { PolicySets } from './policy-sets.js';
import { presentVerdict } from './policy-verdict.js';

const calls = PolicyService.method;

/** Workloads that one call tests at most. */
const MAX_TESTED = 100;
/**
 * Time after which a page ends, milliseconds: the coordinator serves no other call meanwhile, and
 * expressions may be slow.
 */
const PAGE_MS = 50;

/** Handler of TestPolicy. */
export class PolicyTests {
  private readonly access: CallAccess;

  constructor(
    private readonly deps: ReadDeps,
    private readonly sets: PolicySets,
  ) {
    this.access = new CallAccess(deps);
  }

  testPolicy(request: TestPolicyRequest, context: HandlerContext): TestPolicyResponse {
    checkTarget(request);
    const view = this.deps.state.view();
    const candidates = this.compileCandidates(request.candidates, context);
    if (request.name === '' && request.spec === undefined)
      return this.testStored(view, this.sets.getWith(view, candidates), request, context);
    const namespace = resolveNamespace(request);
    this.access.requireNamespace(this.access.getCaller(context), calls.testPolicy, namespace);
    let { spec } = request;
    if (spec === undefined) spec = getSpec(requireWorkload(view, request).value);
    else checkSpec(spec);
    const subject = { namespace, name: request.name, spec };
    return create(TestPolicyResponseSchema, {
      verdicts: [judge(this.sets.getWith(view, candidates), subject)],
      revision: view.revision,
    });
  }

  /** Tests one page of the stored workloads. */
  private testStored(
    view: ClusterView,
    set: PolicySet,
    request: TestPolicyRequest,
    context: HandlerContext,
  ): TestPolicyResponse {
    const { namespace, pageToken, violationsOnly } = request;
    const caller = this.access.getCaller(context);
    const isVisible = this.access.createFilter(caller, calls.testPolicy, namespace);
    const readPage = (pageSize: number) =>
      paginateIndex(
        (after) => listWorkloadsAfter(view, namespace, after),
        (record) => toNameKeyId(record.namespace, record.name),
        { pageSize, pageToken },
        { filter: ['policy tests', namespace, violationsOnly] },
        (record) => isVisible(record.namespace) && record.deletionRequestedAt === undefined,
      );
    const page = readPage(Math.min(request.pageSize || MAX_TESTED, MAX_TESTED));
    const { clock } = this.deps;
    const endMs = clock.now() + PAGE_MS;
    const tested = [];
    for (const record of page.items) {
      if (tested.length > 0 && clock.now() >= endMs) break;
      tested.push(judge(set, { ...record, spec: getSpec(record) }));
    }
    const isWhole = tested.length === page.items.length;
    return create(TestPolicyResponseSchema, {
      verdicts: violationsOnly ? tested.filter((each) => each.totalViolations > 0) : tested,
      nextPageToken: (isWhole ? page : readPage(tested.length)).nextPageToken,
      revision: view.revision,
    });
  }

  private compileCandidates(
    policies: readonly Policy[],
    context: HandlerContext,
  ): readonly CompiledPolicy[] {
    if (policies.length === 0) return [];
    this.access.requireNamespace(this.access.getCaller(context), calls.createPolicy, '');
    const violations = policies.flatMap(({ uid, generation, createdAt, name }, index) => [
      ...(uid === '' && generation === 0n && createdAt === undefined
        ? []
        : [{ field: `candidates[${index}]`, message: 'may only have name and spec' }]),
      ...(policies.findIndex((other) => other.name === name) === index
        ? []
        : [{ field: `candidates[${index}].name`, message: `"${name}" is used twice` }]),
    ]);
    const expressions = policies.reduce(
      (sum, policy) => sum + countExpressions(getPolicySpec(policy)),
      0,
    );
    if (expressions > MAX_EXPRESSIONS) {
      const message = `have ${expressions} rules of type EXPRESSION; at most ${MAX_EXPRESSIONS} are allowed`;
      violations.push({ field: 'candidates', message });
    }
    if (violations.length > 0) throw new InvalidInputError(violations);
    return policies.map((policy, index) =>
      compileSpec(policy.name, getPolicySpec(policy), `candidates[${index}].spec`),
    );
  }
}

function judge(
  set: PolicySet,
  { namespace, name, spec }: { namespace: string; name: string; spec: WorkloadSpec },
) {
  const subject = { namespace, name, spec: withDefaults(spec) };
  return presentVerdict(subject, evaluatePolicies(set, subject));
}

/** Refuses combinations of fields of which one would be ignored. */
function checkTarget({ name, spec, violationsOnly, pageSize, pageToken }: TestPolicyRequest): void {
  if (name === '' && spec === undefined) return;
  const message = 'is only for tests of all stored workloads, without name and spec';
  const violations: Violation[] = [
    ...(violationsOnly ? [{ field: 'violations_only', message }] : []),
    ...(pageSize === 0 ? [] : [{ field: 'page_size', message }]),
    ...(pageToken === '' ? [] : [{ field: 'page_token', message }]),
  ];
  if (violations.length > 0) throw new InvalidInputError(violations);
}
