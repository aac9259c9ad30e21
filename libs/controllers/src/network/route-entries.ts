import {
  selectsNode,
  toEffectiveNode,
  toRouteKeyId,
  type ClusterView,
} from '@cloudless/cluster-state';
import { drainMarked } from './drain-marked.js';
import { encodeRoute } from './entry-encoding.js';
import { EntrySet } from './entry-set.js';

/**
 * The entries of HTTP routes. A route with a node selector is derived again when the labels of a node
 * change, and when a node appears or disappears.
 */
export class RouteEntries {
  readonly entries = new EntrySet();
  private readonly marked = new Set<string>();
  /** Keys of the routes with a node selector. */
  private readonly selective = new Set<string>();
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
    this.entries.set(key, record && encodeRoute(record, nodeIds));
  }
}
