import type { EndpointRecord, ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import { selectsWorkload } from '../network/service-endpoints.js';
import { toServiceKeyId } from '../records/records.js';
import { SortedKeys } from './sorted-keys.js';
import type { RecordMap, Stored } from './record-change.js';

/** Reads of the view that the index needs. */
export interface ServiceSources {
  readonly services: Pick<RecordMap<Stored<ServiceRecord>>, 'get'>;
  readonly workloads: Pick<RecordMap<Stored<WorkloadRecord>>, 'get'>;
  readonly endpoints: Pick<RecordMap<Stored<EndpointRecord>>, 'get'>;
}

/**
 * Finds the services that select a workload, the workloads that a service selects, and the
 * endpoints of a service, each at a cost in proportion to the labels and the result.
 */
export class ServiceIndex {
  private readonly sortedKeys = new SortedKeys();
  /** Keys of services by the workload or the label that every selected workload has. */
  private readonly servicesByTerm = new Map<string, Set<string>>();
  /** Uids of workloads by namespace and label. */
  private readonly workloadsByLabel = new Map<string, Set<string>>();
  /** Keys of endpoints outside the cluster by the key of their service. */
  private readonly endpointsByService = new Map<string, Set<string>>();

  constructor(private readonly sources: ServiceSources) {}

  applyService(
    key: string,
    before: ServiceRecord | undefined,
    after: ServiceRecord | undefined,
  ): void {
    if (after === undefined) this.sortedKeys.delete(key);
    else this.sortedKeys.add(key);
    const [termBefore, term] = [before, after].map((record) => record && toServiceTerm(record));
    if (termBefore === term) return;
    if (termBefore !== undefined) removeFrom(this.servicesByTerm, termBefore, key);
    if (term !== undefined) addTo(this.servicesByTerm, term, key);
  }

  applyWorkload(
    uid: string,
    before: WorkloadRecord | undefined,
    after: WorkloadRecord | undefined,
  ): void {
    if (before !== undefined && after !== undefined && hasSameLabels(before, after)) return;
    for (const term of before === undefined ? [] : listLabelTerms(before))
      removeFrom(this.workloadsByLabel, term, uid);
    for (const term of after === undefined ? [] : listLabelTerms(after))
      addTo(this.workloadsByLabel, term, uid);
  }

  applyEndpoint(id: string, isStored: boolean): void {
    const service = id.slice(0, id.lastIndexOf('/'));
    if (isStored) addTo(this.endpointsByService, service, id);
    else removeFrom(this.endpointsByService, service, id);
  }

  /** Services by key, ascending. `after`: only services after this key. */
  *servicesByName(after?: string): Generator<Stored<ServiceRecord>, void> {
    for (const key of this.sortedKeys.after(after)) {
      const service = this.sources.services.get(key);
      if (service !== undefined) yield service;
    }
  }

  *servicesSelecting(workload: WorkloadRecord): Generator<Stored<ServiceRecord>, void> {
    for (const term of [toNameTerm(workload), ...listLabelTerms(workload)]) {
      for (const key of this.servicesByTerm.get(term) ?? []) {
        const service = this.sources.services.get(key);
        if (service !== undefined && selectsWorkload(service.value, workload)) yield service;
      }
    }
  }

  /** The workloads with the labels of the selector of a service, in any order. */
  *workloadsWithLabelsOf(service: ServiceRecord): Generator<Stored<WorkloadRecord>, void> {
    const term = toServiceTerm(service);
    for (const uid of term === undefined ? [] : (this.workloadsByLabel.get(term) ?? [])) {
      const workload = this.sources.workloads.get(uid);
      if (workload !== undefined && selectsWorkload(service, workload.value)) yield workload;
    }
  }

  *endpointsOf(serviceKey: string): Generator<Stored<EndpointRecord>, void> {
    const uid = this.sources.services.get(serviceKey)?.value.uid;
    for (const id of this.endpointsByService.get(serviceKey) ?? []) {
      const endpoint = this.sources.endpoints.get(id);
      if (endpoint !== undefined && endpoint.value.serviceUid === uid) yield endpoint;
    }
  }
}

const toNameTerm = ({ namespace, name }: { readonly namespace: string; readonly name: string }) =>
  `name ${toServiceKeyId(namespace, name)}`;
const toLabelTerm = (namespace: string, [key, value]: readonly [string, string]): string =>
  `label ${namespace} ${key} ${value}`;

/**
 * Returns a term that every workload has that a service selects; undefined for a service that
 * selects none.
 */
function toServiceTerm({ namespace, spec }: ServiceRecord): string | undefined {
  if (spec === undefined) return undefined;
  if (spec.workload !== '') return toNameTerm({ namespace, name: spec.workload });
  const [first] = Object.entries(spec.selector).sort(([a], [b]) => (a < b ? -1 : 1));
  return first && toLabelTerm(namespace, first);
}

function listLabelTerms({ namespace, spec }: WorkloadRecord): readonly string[] {
  return Object.entries(spec?.labels ?? {}).map((label) => toLabelTerm(namespace, label));
}

function hasSameLabels(before: WorkloadRecord, after: WorkloadRecord): boolean {
  const left = before.spec?.labels ?? {};
  const right = after.spec?.labels ?? {};
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => left[key] === right[key]);
}

function addTo(groups: Map<string, Set<string>>, term: string, id: string): void {
  const group = groups.get(term);
  if (group === undefined) groups.set(term, new Set([id]));
  else group.add(id);
}

function removeFrom(groups: Map<string, Set<string>>, term: string, id: string): void {
  const group = groups.get(term);
  group?.delete(id);
  if (group?.size === 0) groups.delete(term);
}
