import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  GetSecretResponseSchema,
  ListSecretsResponseSchema,
  SecretsService,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  type GetSecretRequest,
  type GetSecretResponse,
  type ListSecretsRequest,
  type ListSecretsResponse,
} from '@cloudless/api';
import type { SecretRecord } from '@cloudless/api/store';
import { toSecretKeyId, type ClusterView } from '@cloudless/cluster-state';
import { CallAccess } from '../access/call-access.js';
import { listRouteUses, listUses } from '../files/workload-uses.js';
import type { ReadDeps } from '../ports.js';
import { listLiveTokens } from './access-token.js';
import { requireNoTokenFields } from './access-token-use.js';
import type { SecretKeys } from './secret-keys.js';
import {
  presentNewest,
  presentSecret,
  requireSecret,
  toSecretKey,
  toUsedObject,
} from './secret-lookup.js';

/** Handlers of the calls of SecretsService that read secrets without their values. */
export class SecretReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps & { readonly keys: SecretKeys }) {
    this.access = new CallAccess(deps);
  }

  /** Handles GetSecret without an access token: returns no values. */
  async getSecret(request: GetSecretRequest): Promise<GetSecretResponse> {
    requireNoTokenFields(request);
    const { state, keys, clock } = this.deps;
    await keys.open(state.view());
    const view = state.view();
    const { value } = requireSecret(view, request);
    const object = toUsedObject(value);
    const secret = Object.assign(presentSecret(value), {
      usedBy: listUses(view, object, value.version),
      usedByRoutes: listRouteUses(view, object),
    });
    const accessTokens = listLiveTokens(view, value, clock.wallTime()).flatMap(
      ({ value: { token } }) => token ?? [],
    );
    return create(GetSecretResponseSchema, { secret, accessTokens });
  }

  async listSecrets(
    request: ListSecretsRequest,
    context: HandlerContext,
  ): Promise<ListSecretsResponse> {
    const { namespace, labelSelector, namePrefix } = request;
    const caller = this.access.getCaller(context);
    const { listSecrets } = SecretsService.method;
    const isVisible = this.access.createFilter(caller, listSecrets, namespace);
    const selector = parseLabelSelector(labelSelector);
    const { state, keys } = this.deps;
    await keys.open(state.view());
    const view = state.view();
    const { items, nextPageToken } = paginateIndex(
      (after) => listSecretsAfter(view, namespace, after),
      toSecretKey,
      request,
      { filter: ['secrets', namespace, labelSelector, namePrefix] },
      (record) =>
        isVisible(record.namespace) &&
        record.name.startsWith(namePrefix) &&
        matchesLabels(selector, record.labels),
    );
    const secrets = items.map(presentNewest);
    return create(ListSecretsResponseSchema, { secrets, nextPageToken, revision: view.revision });
  }
}

function* listSecretsAfter(
  view: ClusterView,
  namespace: string,
  after: string | undefined,
): Generator<SecretRecord, void> {
  const prefix = namespace === '' ? '' : toSecretKeyId(namespace, '');
  const start = after === undefined || after < prefix ? prefix : after;
  for (const { value } of view.secretsByName(start)) {
    if (namespace !== '' && value.namespace !== namespace) return;
    yield value;
  }
}
