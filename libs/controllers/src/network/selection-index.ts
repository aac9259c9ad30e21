import type { ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import { selectsWorkload } from '@cloudless/cluster-state';

const NONE: ReadonlySet<string> = new Set();

/** Links to the other side that a change of one side has added and removed. */
export interface LinkChanges {
  readonly added: readonly string[];
  readonly removed: readonly string[];
}

/**
 * Index of the workloads that each service selects. A change of a service compares only the
 * workloads of its namespace that have one of its labels; a change of a workload compares only the
 * services that select one of its labels.
 */
export class SelectionIndex {
  /** Keys of services by the term that every selected workload has. */
  private readonly servicesByTerm = new Groups();
  /** Uids of workloads by each of their terms. */
  private readonly workloadsByTerm = new Groups();
  private readonly termOfService = new Map<string, string>();
  private readonly termsOfWorkload = new Map<string, readonly string[]>();
  private readonly workloadsByService = new Groups();
  private readonly servicesByWorkload = new Groups();

  /** Keys of the services that select a workload. */
  servicesOf(uid: string): ReadonlySet<string> {
    return this.servicesByWorkload.get(uid);
  }

  /** Uids of the workloads that a service selects. */
  workloadsOf(key: string): ReadonlySet<string> {
    return this.workloadsByService.get(key);
  }

  /** @param service - Undefined when the service was deleted. */
  setService(
    key: string,
    service: ServiceRecord | undefined,
    getWorkload: (uid: string) => WorkloadRecord | undefined,
  ): LinkChanges {
    const term = service && toSelectorTerm(service);
    const termBefore = this.termOfService.get(key);
    if (term !== termBefore) {
      if (termBefore !== undefined) this.servicesByTerm.delete(termBefore, key);
      if (term === undefined) this.termOfService.delete(key);
      else {
        this.termOfService.set(key, term);
        this.servicesByTerm.add(term, key);
      }
    }
    const selected = new Set<string>();
    if (service !== undefined && term !== undefined)
      for (const uid of this.workloadsByTerm.get(term)) {
        const workload = getWorkload(uid);
        if (workload !== undefined && selectsWorkload(service, workload)) selected.add(uid);
      }
    const changes = diff(this.workloadsOf(key), selected);
    for (const uid of changes.added) this.link(key, uid);
    for (const uid of changes.removed) this.unlink(key, uid);
    return changes;
  }

  /** @param workload - Undefined when the workload was deleted. */
  setWorkload(
    uid: string,
    workload: WorkloadRecord | undefined,
    getService: (key: string) => ServiceRecord | undefined,
  ): LinkChanges {
    const terms = workload === undefined ? [] : toWorkloadTerms(workload);
    for (const term of this.termsOfWorkload.get(uid) ?? []) this.workloadsByTerm.delete(term, uid);
    for (const term of terms) this.workloadsByTerm.add(term, uid);
    if (terms.length === 0) this.termsOfWorkload.delete(uid);
    else this.termsOfWorkload.set(uid, terms);
    const selecting = new Set<string>();
    if (workload !== undefined)
      for (const key of terms.flatMap((term) => [...this.servicesByTerm.get(term)])) {
        const service = getService(key);
        if (service !== undefined && selectsWorkload(service, workload)) selecting.add(key);
      }
    const changes = diff(this.servicesOf(uid), selecting);
    for (const key of changes.added) this.link(key, uid);
    for (const key of changes.removed) this.unlink(key, uid);
    return changes;
  }

  private link(key: string, uid: string): void {
    this.workloadsByService.add(key, uid);
    this.servicesByWorkload.add(uid, key);
  }

  private unlink(key: string, uid: string): void {
    this.workloadsByService.delete(key, uid);
    this.servicesByWorkload.delete(uid, key);
  }
}

/** Sets of strings by name, without empty sets. */
class Groups {
  private readonly groups = new Map<string, Set<string>>();

  get(name: string): ReadonlySet<string> {
    return this.groups.get(name) ?? NONE;
  }

  add(name: string, member: string): void {
    const group = this.groups.get(name);
    if (group === undefined) this.groups.set(name, new Set([member]));
    else group.add(member);
  }

  delete(name: string, member: string): void {
    const group = this.groups.get(name);
    group?.delete(member);
    if (group?.size === 0) this.groups.delete(name);
  }
}

function diff(before: ReadonlySet<string>, after: ReadonlySet<string>): LinkChanges {
  return {
    added: [...after].filter((member) => !before.has(member)),
    removed: [...before].filter((member) => !after.has(member)),
  };
}

/** A term that all workloads have that a service selects; undefined when it selects none. */
function toSelectorTerm({ namespace, spec }: ServiceRecord): string | undefined {
  if (spec === undefined) return undefined;
  if (spec.workload !== '') return toNameTerm(namespace, spec.workload);
  const [first] = Object.entries(spec.selector).sort(([a], [b]) => (a < b ? -1 : 1));
  return first && toLabelTerm(namespace, ...first);
}

function toWorkloadTerms({ namespace, name, spec }: WorkloadRecord): string[] {
  const labels = Object.entries(spec?.labels ?? {});
  return [
    toNameTerm(namespace, name),
    ...labels.map(([key, value]) => toLabelTerm(namespace, key, value)),
  ];
}

// Neither namespaces nor names and keys contain `/` at these places, so terms are never ambiguous.
const toNameTerm = (namespace: string, name: string): string => `${namespace}//${name}`;
const toLabelTerm = (namespace: string, key: string, value: string): string =>
  `${namespace}/${key}=${value}`;
