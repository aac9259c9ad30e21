import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ConfigSchema,
  ConfigsService,
  ListConfigsResponseSchema,
  WatchConfigsResponseSchema,
  WatchConfigsResponse_Kind as WatchKind,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  type Config,
  type GetConfigRequest,
  type ListConfigsRequest,
  type ListConfigsResponse,
  type WatchConfigsRequest,
  type WatchConfigsResponse,
} from '@cloudless/api';
import type { ConfigRecord } from '@cloudless/api/store';
import { toConfigKeyId, toValueKeyId, type ClusterView } from '@cloudless/cluster-state';
import { CallAccess } from '../access/call-access.js';
import type { ReadDeps } from '../ports.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { watchRecords, type WatchSource } from '../watch/watch-records.js';
import {
  createVersionNotFoundError,
  presentConfig,
  requireConfig,
  toConfigKey,
} from './config-lookup.js';
import { listUses } from './workload-uses.js';

const calls = ConfigsService.method;

/** Handlers of the calls of ConfigsService that read configs. */
export class ConfigReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps & { readonly livenessChanges: LivenessChanges }) {
    this.access = new CallAccess(deps);
  }

  /** @throws reason CONFIG_NOT_FOUND, also for a version that is not kept. */
  async getConfig(request: GetConfigRequest): Promise<Config> {
    const { state } = this.deps;
    const record = requireConfig(state.view(), request).value;
    const version = request.version === 0 ? record.version : request.version;
    if (!record.versions.some((kept) => kept.version === version))
      throw createVersionNotFoundError(record, version);
    const values = await state.readRecord('configvalue', toValueKeyId(record.uid, version));
    // The version was removed between the two reads.
    if (values === undefined) throw createVersionNotFoundError(record, version);
    const { namespace, name } = record;
    const usedBy = listUses(state.view(), { kind: 'configs', namespace, name }, record.version);
    return Object.assign(presentConfig(record), { data: values.value.data, usedBy });
  }

  listConfigs(request: ListConfigsRequest, context: HandlerContext): ListConfigsResponse {
    const { namespace, labelSelector, namePrefix } = request;
    const isVisible = this.createFilter(calls.listConfigs, namespace, context);
    const selector = parseLabelSelector(labelSelector);
    const view = this.deps.state.view();
    const { items, nextPageToken } = paginateIndex(
      (after) => listConfigsAfter(view, namespace, after),
      toConfigKey,
      request,
      { filter: ['configs', namespace, labelSelector, namePrefix] },
      (record) =>
        isVisible(record.namespace) &&
        record.name.startsWith(namePrefix) &&
        matchesLabels(selector, record.labels),
    );
    const { revision } = view;
    const configs = items.map(presentConfig);
    return create(ListConfigsResponseSchema, { configs, nextPageToken, revision });
  }

  watchConfigs(
    request: WatchConfigsRequest,
    context: HandlerContext,
  ): AsyncGenerator<WatchConfigsResponse> {
    const { namespace, labelSelector, afterRevision } = request;
    const isVisible = this.createFilter(calls.watchConfigs, namespace, context);
    const selector = parseLabelSelector(labelSelector);
    const source = createConfigSource(
      (record) =>
        (namespace === '' || record.namespace === namespace) &&
        isVisible(record.namespace) &&
        matchesLabels(selector, record.labels),
    );
    return watchRecords(this.deps, source, afterRevision, context.signal);
  }

  private createFilter(
    method: Parameters<CallAccess['createFilter']>[1],
    namespace: string,
    context: HandlerContext,
  ): (namespace: string) => boolean {
    return this.access.createFilter(this.access.getCaller(context), method, namespace);
  }
}

function* listConfigsAfter(
  view: ClusterView,
  namespace: string,
  after: string | undefined,
): Generator<ConfigRecord, void> {
  const prefix = namespace === '' ? '' : toConfigKeyId(namespace, '');
  for (const { value } of view.configsByName(
    after === undefined || after < prefix ? prefix : after,
  )) {
    if (namespace !== '' && value.namespace !== namespace) return;
    yield value;
  }
}

function createConfigSource(
  matchesFilter: (record: ConfigRecord) => boolean,
): WatchSource<'config', WatchConfigsResponse> {
  return {
    kind: 'config',
    dependsOn: ['config'],
    getKey: ({ namespace, name }) => toConfigKeyId(namespace, name),
    findRecord: (view, key) => view.config(key),
    listRecords: (view) => view.configs(),
    matchesFilter,
    listAffectedKeys: (_view, { kind, id }) => (kind === 'config' ? [id] : []),
    listKeysAffectedByLiveness: () => [],
    toItem: (update) => {
      const { revision } = update;
      switch (update.kind) {
        case 'put': {
          const config = presentConfig(update.record);
          return create(WatchConfigsResponseSchema, { kind: WatchKind.PUT, config, revision });
        }
        case 'deleted': {
          const { namespace, name, uid } = update.record;
          const config = create(ConfigSchema, { namespace, name, uid });
          return create(WatchConfigsResponseSchema, { kind: WatchKind.DELETED, config, revision });
        }
        case 'synced':
          return create(WatchConfigsResponseSchema, { kind: WatchKind.SYNCED, revision });
        case 'bookmark':
          return create(WatchConfigsResponseSchema, { kind: WatchKind.BOOKMARK, revision });
      }
    },
  };
}
