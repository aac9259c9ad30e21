import { PolicySpec_Action as Action } from '@cloudless/api';
import type { PolicyRecord } from '@cloudless/api/store';
import { errorFields, errorMessageOf, type Log } from '@cloudless/base';
import type { ClusterState, ClusterView } from '@cloudless/cluster-state';
import {
  createPolicySet,
  type CompileOptions,
  type CompiledPolicy,
  type PolicySet,
} from '@cloudless/policy';
import { compileSpec } from './policy-input.js';
import { getPolicySpec } from './policy-lookup.js';

/** Decision about a workload that no policy selects. */
const DEFAULT_DECISION = 'ALLOW';

/** Ports of {@link PolicySets}. */
export interface PolicySetDeps extends CompileOptions {
  readonly state: Pick<ClusterState, 'view' | 'subscribe'>;
  readonly log: Log;
}

/**
 * The stored policies, prepared for evaluation. Rebuilt when a policy changes, on coordinators that
 * lead and that follow; a policy that has not changed is not compiled again. Close it.
 */
export class PolicySets {
  private readonly compiled = new WeakMap<PolicyRecord, CompiledPolicy>();
  private current: { readonly revision: bigint; readonly set: PolicySet } | undefined;
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: PolicySetDeps) {
    this.unsubscribe = deps.state.subscribe((changes) => {
      if (changes.some(({ kind }) => kind === 'policyguard')) this.get(deps.state.view());
    });
    this.get(deps.state.view());
  }

  /** Returns the stored policies of a view. */
  get(view: ClusterView): PolicySet {
    const revision = view.policyGuard()?.revision ?? 0n;
    if (this.current?.revision === revision) return this.current.set;
    const set = createPolicySet(
      [...view.policies()].map(({ value }) => this.compile(value)),
      DEFAULT_DECISION,
    );
    this.current = { revision, set };
    return set;
  }

  /**
   * Returns the stored policies of a view with further ones, each instead of the stored policy of its
   * name.
   */
  getWith(view: ClusterView, candidates: readonly CompiledPolicy[]): PolicySet {
    if (candidates.length === 0) return this.get(view);
    const replaced = new Set(candidates.map(({ name }) => name));
    const stored = [...view.policies()].filter(({ value }) => !replaced.has(value.name));
    return createPolicySet(
      [...stored.map(({ value }) => this.compile(value)), ...candidates],
      DEFAULT_DECISION,
    );
  }

  close(): void {
    this.unsubscribe();
  }

  /**
   * Prepares a stored policy. A policy that this version cannot evaluate, such as one with a rule of
   * a newer version, is violated by every workload of its namespace.
   */
  private compile(record: PolicyRecord): CompiledPolicy {
    const known = this.compiled.get(record);
    if (known !== undefined) return known;
    const spec = getPolicySpec(record);
    let policy: CompiledPolicy;
    try {
      policy = compileSpec(record.name, spec, 'spec', this.deps);
    } catch (reason) {
      this.deps.log.error('policy cannot be evaluated', {
        policy: record.name,
        ...errorFields(reason),
      });
      policy = createFailingPolicy(record, errorMessageOf(reason));
    }
    this.compiled.set(record, policy);
    return policy;
  }
}

function createFailingPolicy(record: PolicyRecord, problem: string): CompiledPolicy {
  const { namespace, enabled = true, priority, action } = getPolicySpec(record);
  return {
    ...{ name: record.name, namespace, priority, enabled },
    action: action === Action.AUDIT ? 'AUDIT' : 'DENY',
    rules: [
      {
        name: 'all-rules',
        conditions: [],
        check: () => {
          throw new Error(`this coordinator cannot evaluate the policy: ${problem}`);
        },
      },
    ],
  };
}
