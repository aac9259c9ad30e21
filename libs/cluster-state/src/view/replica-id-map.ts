import { parseSequence } from './replica-table.js';

/**
 * A map by the id of a replica (`<uid>-<sequence>`), in one map for each workload. Changes come
 * workload by workload, so the maps in use stay in the caches of the processor; in one map of all
 * replicas of a large cluster, almost every look-up reads from memory.
 */
export class ReplicaIdMap<Value> {
  /** By uid of the workload, then by sequence number; no map is empty. */
  private readonly groups = new Map<string, Map<number, Value>>();
  /** Values of ids that are no uid and sequence number. */
  private readonly irregular = new Map<string, Value>();
  /** The group that was used last, and its uid. */
  private lastUid: string | undefined;
  private lastGroup: Map<number, Value> | undefined;

  get(id: string): Value | undefined {
    const sequence = parseSequence(id, id.lastIndexOf('-') + 1);
    return sequence < 0 ? this.irregular.get(id) : this.findGroup(id)?.get(sequence);
  }

  set(id: string, value: Value): void {
    const sequence = parseSequence(id, id.lastIndexOf('-') + 1);
    if (sequence < 0) this.irregular.set(id, value);
    else (this.findGroup(id) ?? this.addGroup(id)).set(sequence, value);
  }

  delete(id: string): void {
    const sequence = parseSequence(id, id.lastIndexOf('-') + 1);
    if (sequence < 0) {
      this.irregular.delete(id);
      return;
    }
    const group = this.findGroup(id);
    if (group?.delete(sequence) !== true || group.size > 0) return;
    this.groups.delete(uidOf(id));
    [this.lastUid, this.lastGroup] = [undefined, undefined];
  }

  private findGroup(id: string): Map<number, Value> | undefined {
    const { lastUid } = this;
    if (lastUid?.length === id.lastIndexOf('-') && id.startsWith(lastUid)) return this.lastGroup;
    const uid = uidOf(id);
    const group = this.groups.get(uid);
    if (group !== undefined) [this.lastUid, this.lastGroup] = [uid, group];
    return group;
  }

  private addGroup(id: string): Map<number, Value> {
    const group = new Map<number, Value>();
    const uid = uidOf(id);
    this.groups.set(uid, group);
    [this.lastUid, this.lastGroup] = [uid, group];
    return group;
  }
}

const uidOf = (id: string): string => id.slice(0, id.lastIndexOf('-'));
