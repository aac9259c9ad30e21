import {
  selectsNode,
  toEffectiveNode,
  toRouteKeyId,
  toSecretKeyId,
  type ClusterView,
} from '@cloudless/cluster-state';
import type { RouteRecord } from '@cloudless/api/store';
import { drainMarked } from './drain-marked.js';
import { encodeRoute } from './entry-encoding.js';
import { EntrySet } from './entry-set.js';

/**
 * The entries of HTTP routes. A route with a node selector is derived again when the labels of a node
 * change, and when a node appears or disappears; a route whose `tls` names a secret when that secret
 * is created or deleted, and when the secret has a new version.
 */
export class RouteEntries {
  readonly entries = new EntrySet();
  private readonly marked = new Set<string>();
  /** Keys of the routes with a node selector. */
  private readonly selective = new Set<string>();
  /** Key of the secret in `tls`, by key of the route. */
  private readonly secretOf = new Map<string, string>();
  /** Keys of the routes that name a secret, by key of the secret. */
  private readonly bySecret = new Map<string, Set<string>>();
  /** Labels of each node, as text that is equal for equal labels. */
  private readonly labels = new Map<string, string>();
  private derivedCount = 0;

  /** All routes of the view are marked at the start. */
  constructor(private readonly source: { readonly view: () => ClusterView }) {
    for (const { value } of source.view().routes())
      this.marked.add(toRouteKeyId(value.namespace, value.name));
  }

  /** Number of entries that were derived so far. */
  get derivedEntries(): number {
    return this.derivedCount;
  }

  get isBehind(): boolean {
    return this.marked.size > 0;
  }

  /** Marks a route that has changed. */
  mark(key: string): void {
    this.marked.add(key);
  }

  /** Marks the routes that a changed node may serve from now on, or no longer serves. */
  markNode(nodeId: string): void {
    const node = this.source.view().node(nodeId)?.value;
    const labels = node && Object.entries(toEffectiveNode(node).labels).sort();
    const text = labels && JSON.stringify(labels);
    if (text === this.labels.get(nodeId)) return;
    if (text === undefined) this.labels.delete(nodeId);
    else this.labels.set(nodeId, text);
    for (const key of this.selective) this.marked.add(key);
  }

  /** Marks the routes that name a secret which exists anew, no longer, or in another version. */
  markSecret(secretKey: string): void {
    for (const key of this.bySecret.get(secretKey) ?? []) this.marked.add(key);
  }

  /** Derives marked entries again until `isDone` returns true. */
  update(isDone: () => boolean): void {
    drainMarked(this.marked, isDone, (key) => this.updateRoute(key));
  }

  private updateRoute(key: string): void {
    this.derivedCount += 1;
    const view = this.source.view();
    const record = view.route(key)?.value;
    const selector = record?.spec?.nodeSelector ?? {};
    const isSelective = Object.keys(selector).length > 0;
    this.selective[isSelective ? 'add' : 'delete'](key);
    const nodeIds = isSelective
      ? [...view.nodes()]
          .filter(({ value }) => selectsNode(selector, value))
          .map(({ value }) => value.id)
          .sort()
      : [];
    const secretKey = record && secretKeyOf(record);
    this.indexSecret(key, secretKey);
    const secret = secretKey === undefined ? undefined : view.secret(secretKey)?.value;
    this.entries.set(key, record && encodeRoute(record, nodeIds, secret));
  }

  private indexSecret(key: string, secretKey: string | undefined): void {
    const before = this.secretOf.get(key);
    if (before === secretKey) return;
    if (before !== undefined) {
      const keys = this.bySecret.get(before);
      keys?.delete(key);
      if (keys?.size === 0) this.bySecret.delete(before);
    }
    if (secretKey === undefined) this.secretOf.delete(key);
    else {
      this.secretOf.set(key, secretKey);
      const keys = this.bySecret.get(secretKey);
      if (keys === undefined) this.bySecret.set(secretKey, new Set([key]));
      else keys.add(key);
    }
  }
}

/** The key of the secret in the `tls` of a route; undefined when `tls` names none. */
function secretKeyOf({ namespace, spec }: RouteRecord): string | undefined {
  const name = spec?.tls?.certificateSecret ?? '';
  return name === '' ? undefined : toSecretKeyId(namespace, name);
}
