import { fromBinary } from '@bufbuild/protobuf';
import {
  NetworkUpdateSchema,
  type NetworkEndpointEntry,
  type NetworkNodeEntry,
  type NetworkRouteEntry,
  type NetworkServiceEntry,
  type NetworkSettings,
  type NetworkUpdate,
} from '@cloudless/api';

/** State of a network proxy after the updates that it has received. */
export class FeedMirror {
  readonly services = new Map<string, NetworkServiceEntry>();
  readonly endpoints = new Map<string, NetworkEndpointEntry>();
  readonly nodes = new Map<string, NetworkNodeEntry>();
  readonly routes = new Map<string, NetworkRouteEntry>();
  settings: NetworkSettings | undefined;
  /** Revision of the last complete update. */
  revision = 0n;
  feedId = '';
  resets = 0;
  updates = 0;

  apply(bytes: Uint8Array): NetworkUpdate {
    const update = fromBinary(NetworkUpdateSchema, bytes);
    this.updates += 1;
    if (update.reset) {
      this.resets += 1;
      for (const entries of [this.services, this.endpoints, this.nodes, this.routes])
        entries.clear();
    }
    this.settings = update.settings ?? this.settings;
    for (const entry of update.services)
      this.services.set(`${entry.namespace}/${entry.name}`, entry);
    for (const entry of update.routes) this.routes.set(`${entry.namespace}/${entry.name}`, entry);
    for (const key of update.removedRoutes) this.routes.delete(key);
    for (const entry of update.endpoints) this.endpoints.set(entry.id, entry);
    for (const entry of update.nodes) this.nodes.set(entry.id, entry);
    for (const key of update.removedServices) this.services.delete(key);
    for (const id of update.removedEndpoints) this.endpoints.delete(id);
    for (const id of update.removedNodes) this.nodes.delete(id);
    if (update.feedId !== '') this.feedId = update.feedId;
    if (update.complete) this.revision = update.revision;
    return update;
  }

  /** Ids of the endpoints that receive new connections, sorted. */
  get ready(): readonly string[] {
    return [...this.endpoints.values()]
      .filter(({ ready, nodeId }) => ready && this.nodes.get(nodeId)?.alive === true)
      .map(({ id }) => id)
      .sort();
  }
}
