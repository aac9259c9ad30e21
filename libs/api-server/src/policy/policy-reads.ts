import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ListPoliciesResponseSchema,
  PolicySchema,
  PolicyService,
  WatchPoliciesResponseSchema,
  WatchPoliciesResponse_Kind as WatchKind,
  paginate,
  type GetPolicyRequest,
  type ListPoliciesRequest,
  type ListPoliciesResponse,
  type Policy,
  type WatchPoliciesRequest,
  type WatchPoliciesResponse,
} from '@cloudless/api';
import type { PolicyRecord } from '@cloudless/api/store';
import { CallAccess } from '../access/call-access.js';
import type { ReadDeps } from '../ports.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { watchRecords, type WatchSource } from '../watch/watch-records.js';
import {
  EVERY_NAMESPACE,
  createNotFoundError,
  getPolicySpec,
  presentPolicy,
  requirePolicy,
} from './policy-lookup.js';

const calls = PolicyService.method;

/** Handlers of the calls of PolicyService that read policies. */
export class PolicyReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps & { readonly livenessChanges: LivenessChanges }) {
    this.access = new CallAccess(deps);
  }

  getPolicy({ name }: GetPolicyRequest, context: HandlerContext): Policy {
    const isVisible = this.createFilter('', calls.getPolicy, context);
    const { value } = requirePolicy(this.deps.state.view(), name);
    if (isVisible(value)) return presentPolicy(value);
    throw createNotFoundError(name);
  }

  listPolicies(request: ListPoliciesRequest, context: HandlerContext): ListPoliciesResponse {
    const isVisible = this.createFilter(request.namespace, calls.listPolicies, context);
    const view = this.deps.state.view();
    const policies = [...view.policies()]
      .map(({ value }) => value)
      .filter(isVisible)
      .sort((left, right) => (left.name < right.name ? -1 : 1));
    const { items, nextPageToken } = paginate(policies, ({ name }) => name, request, {
      filter: ['policies', request.namespace],
    });
    const { revision } = view;
    return create(ListPoliciesResponseSchema, {
      policies: items.map(presentPolicy),
      ...{ nextPageToken, revision },
    });
  }

  watchPolicies(
    request: WatchPoliciesRequest,
    context: HandlerContext,
  ): AsyncGenerator<WatchPoliciesResponse> {
    const isVisible = this.createFilter(request.namespace, calls.watchPolicies, context);
    return watchRecords(
      this.deps,
      createPolicySource(isVisible),
      request.afterRevision,
      context.signal,
    );
  }

  /**
   * Returns a predicate for the policies that the caller sees, of those that judge a namespace.
   * Policies for all namespaces are shown to every user with a role.
   */
  private createFilter(
    namespace: string,
    method: Parameters<CallAccess['createFilter']>[1],
    context: HandlerContext,
  ): (record: PolicyRecord) => boolean {
    const isEvery = namespace === EVERY_NAMESPACE;
    const isPermitted = this.access.createFilter(
      this.access.getCaller(context),
      method,
      isEvery ? '' : namespace,
    );
    return (record) => {
      const own = getPolicySpec(record).namespace;
      if (own === EVERY_NAMESPACE) return true;
      return !isEvery && (namespace === '' || own === namespace) && isPermitted(own);
    };
  }
}

function createPolicySource(
  isVisible: (record: PolicyRecord) => boolean,
): WatchSource<'policy', WatchPoliciesResponse> {
  return {
    kind: 'policy',
    dependsOn: ['policy'],
    getKey: ({ name }) => name,
    findRecord: (view, name) => view.policy(name),
    listRecords: (view) => view.policies(),
    matchesFilter: isVisible,
    listAffectedKeys: (_view, { kind, id }) => (kind === 'policy' ? [id] : []),
    listKeysAffectedByLiveness: () => [],
    toItem: (update) => {
      const { revision } = update;
      switch (update.kind) {
        case 'put':
          return create(WatchPoliciesResponseSchema, {
            kind: WatchKind.PUT,
            policy: presentPolicy(update.record),
            revision,
          });
        case 'deleted': {
          const { name, uid } = update.record;
          const policy = create(PolicySchema, { name, uid });
          return create(WatchPoliciesResponseSchema, { kind: WatchKind.DELETED, policy, revision });
        }
        case 'synced':
          return create(WatchPoliciesResponseSchema, { kind: WatchKind.SYNCED, revision });
        case 'bookmark':
          return create(WatchPoliciesResponseSchema, { kind: WatchKind.BOOKMARK, revision });
      }
    },
  };
}
