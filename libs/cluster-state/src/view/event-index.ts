import type { Event } from '@cloudless/api';
import { toNameKeyId } from '../records/records.js';
import { ReplicaIdMap } from './replica-id-map.js';

/** The workload or node that an event is about as a whole. */
export type EventSubject =
  | { readonly kind: 'workload'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'node'; readonly nodeId: string };

/**
 * Index of events: the newest event of each replica with a record, and of each reason about a workload
 * or node, so that a new event can name its cause; and all audit records about secrets, by secret.
 */
export class EventIndex {
  private readonly byReplica = new ReplicaIdMap<Event>();
  /** The highest id of an event so far. */
  private newestId = '';
  private readonly bySubject = new Map<string, Event>();
  /** Audit records by `<namespace>/<name>` of the secret, each list sorted by id. */
  private readonly bySecret = new Map<string, Event[]>();

  getLastOfReplica(replicaId: string): Event | undefined {
    return this.byReplica.get(replicaId);
  }

  getLast(subject: EventSubject, reasons: readonly string[]): Event | undefined {
    const key = toSubjectKey(subject);
    const candidates = reasons.flatMap((reason) => this.bySubject.get(`${reason} ${key}`) ?? []);
    return candidates.reduce<Event | undefined>(
      (newest, event) => (newest === undefined || event.id > newest.id ? event : newest),
      undefined,
    );
  }

  /** Returns the audit records about a secret, oldest first. */
  listOfSecret(key: string): readonly Event[] {
    return this.bySecret.get(key) ?? [];
  }

  /** Applies a change of one event. */
  applyChange(before: Event | undefined, after: Event | undefined): void {
    if (before !== undefined) this.removeFromSecrets(before);
    if (after !== undefined) this.add(after);
    else if (before !== undefined) this.remove(before);
  }

  /** Removes a replica whose record was deleted. */
  forgetReplica(replicaId: string): void {
    this.byReplica.delete(replicaId);
  }

  private add(event: Event): void {
    // Events usually arrive in order; the newest one need not be compared with those before.
    const isNewest = event.id >= this.newestId;
    if (isNewest) this.newestId = event.id;
    for (const id of listIndexedReplicaIds(event))
      if (isNewest) this.byReplica.set(id, event);
      else keepNewest(this.byReplica, id, event);
    const key = toEventKey(event);
    if (key !== undefined) keepNewest(this.bySubject, key, event);
    for (const secret of new Set(event.audit?.secrets)) {
      const events = this.bySecret.get(secret);
      if (events === undefined) this.bySecret.set(secret, [event]);
      else insertEvent(events, event);
    }
  }

  private remove(event: Event): void {
    for (const id of listIndexedReplicaIds(event)) deleteIfSame(this.byReplica, id, event);
    const key = toEventKey(event);
    if (key !== undefined) deleteIfSame(this.bySubject, key, event);
  }

  private removeFromSecrets({ id, audit }: Event): void {
    for (const secret of audit?.secrets ?? []) {
      const events = this.bySecret.get(secret);
      if (events === undefined) continue;
      removeEvent(events, id);
      if (events.length === 0) this.bySecret.delete(secret);
    }
  }
}

/** Ids of all replicas that an event is about. */
export function listReplicaIds({ replicaId, replicaIds }: Event): readonly string[] {
  return replicaIds.length > 0 ? replicaIds : replicaId === '' ? [] : [replicaId];
}

/**
 * Ids of the replicas whose last event an event may be. Empty for audit events, because an audit
 * event causes only the events of its own transaction.
 */
function listIndexedReplicaIds(event: Event): readonly string[] {
  return event.audit === undefined ? listReplicaIds(event) : [];
}

function toSubjectKey(subject: EventSubject): string {
  return subject.kind === 'workload'
    ? `workload ${toNameKeyId(subject.namespace, subject.name)}`
    : `node ${subject.nodeId}`;
}

/** The index key of an event; undefined for events about single replicas and for audit events. */
function toEventKey(event: Event): string | undefined {
  if (event.audit !== undefined) return undefined;
  const { reason, namespace, workload, nodeId } = event;
  if (workload !== '') {
    return event.replicaId === ''
      ? `${reason} ${toSubjectKey({ kind: 'workload', namespace, name: workload })}`
      : undefined;
  }
  return nodeId === '' ? undefined : `${reason} ${toSubjectKey({ kind: 'node', nodeId })}`;
}

/** The part of `Map` that {@link ReplicaIdMap} has as well. */
interface EventMap {
  get(key: string): Event | undefined;
  set(key: string, event: Event): unknown;
  delete(key: string): unknown;
}

function keepNewest(map: EventMap, key: string, event: Event): void {
  const known = map.get(key);
  if (known === undefined || known.id <= event.id) map.set(key, event);
}

function deleteIfSame(map: EventMap, key: string, event: Event): void {
  if (map.get(key)?.id === event.id) map.delete(key);
}

/** Adds an event to a list that is sorted by id. Events usually arrive in order. */
function insertEvent(events: Event[], event: Event): void {
  const last = events.at(-1);
  if (last === undefined || last.id < event.id) events.push(event);
  else events.splice(findFirst(events, event.id), 0, event);
}

/** Removes an event from a list that is sorted by id. */
function removeEvent(events: Event[], id: string): void {
  const index = findFirst(events, id);
  if (events[index]?.id === id) events.splice(index, 1);
}

/** Returns the index of the first event whose id is not below `id`. */
function findFirst(events: readonly Event[], id: string): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((events[middle]?.id ?? '') < id) low = middle + 1;
    else high = middle;
  }
  return low;
}
