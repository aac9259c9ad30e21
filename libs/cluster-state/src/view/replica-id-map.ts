import { TransientMap } from '@cloudless/base';
import { parseSequence } from './replica-table.js';

/**
 * Values by replica id (`<uid>-<sequence>`), grouped by workload. Changes come workload by
 * workload, so the groups in use stay in the caches of the processor; in one map of all replicas of
 * a large cluster, almost every look-up reads from memory. A group is a map, because values are
 * set in any order of the sequence numbers.
 */
export class ReplicaIdMap<Value> {
  /** By uid of the workload, then by sequence number; no map is empty. */
  private readonly groups = new Map<string, TransientMap<number, Value>>();
  /** Values of ids without a uid and a sequence number. */
  private readonly irregular = new Map<string, Value>();
  /** The group that was used last, and its uid. */
  private lastUid: string | undefined;
  private lastGroup: TransientMap<number, Value> | undefined;

  /** Number of workloads with a value. */
  get workloadCount(): number {
    return this.groups.size;
  }

  get(id: string): Value | undefined {
    const sequence = sequenceOf(id);
    return sequence < 0 ? this.irregular.get(id) : this.findGroup(id)?.get(sequence);
  }

  set(id: string, value: Value): void {
    const sequence = sequenceOf(id);
    if (sequence < 0) this.irregular.set(id, value);
    else (this.findGroup(id) ?? this.addGroup(id)).set(sequence, value);
  }

  delete(id: string): void {
    const sequence = sequenceOf(id);
    if (sequence < 0) {
      this.irregular.delete(id);
      return;
    }
    const group = this.findGroup(id);
    if (group?.delete(sequence) !== true || group.size > 0) return;
    this.groups.delete(uidOf(id));
    [this.lastUid, this.lastGroup] = [undefined, undefined];
  }

  private findGroup(id: string): TransientMap<number, Value> | undefined {
    const { lastUid } = this;
    if (lastUid?.length === id.lastIndexOf('-') && id.startsWith(lastUid)) return this.lastGroup;
    const uid = uidOf(id);
    const group = this.groups.get(uid);
    if (group !== undefined) [this.lastUid, this.lastGroup] = [uid, group];
    return group;
  }

  private addGroup(id: string): TransientMap<number, Value> {
    const group = new TransientMap<number, Value>();
    const uid = uidOf(id);
    this.groups.set(uid, group);
    [this.lastUid, this.lastGroup] = [uid, group];
    return group;
  }
}

const sequenceOf = (id: string): number => parseSequence(id, id.lastIndexOf('-') + 1);
const uidOf = (id: string): string => id.slice(0, id.lastIndexOf('-'));
