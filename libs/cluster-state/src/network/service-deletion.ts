import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Port_Protocol as Protocol,
  ServiceSpec_Type as Type,
  type ServiceSpec,
} from '@cloudless/api';
import { ServiceAddressRecordSchema, type ServiceRecord } from '@cloudless/api/store';
import { toServiceKeyId } from '../records/records.js';
import type { Transaction } from '../transaction/transaction.js';
import type { Stored } from '../view/record-change.js';

/** Returns the id of the record of a port of all nodes, such as `tcp/30080`. */
export function toNodePortId(protocol: Protocol, port: number): string {
  return `${Protocol[protocol].toLowerCase()}/${port}`;
}

/**
 * Returns the ids of the records of the external addresses of a service with its ports, such as
 * `tcp/203.0.113.9/443`.
 */
export function listExternalAddressIds({ type, ports, externalIps }: ServiceSpec): string[] {
  if (type !== Type.LOAD_BALANCER) return [];
  return externalIps.flatMap((address) =>
    ports.map(({ protocol, port }) => `${Protocol[protocol].toLowerCase()}/${address}/${port}`),
  );
}

/**
 * Adds the deletion of a service to a transaction: its record, its ports of nodes, its external
 * addresses, and the mark on its virtual address that starts the hour in which no other service
 * gets the address. The janitor deletes its endpoints.
 * @param nowMs - Wall-clock milliseconds.
 */
export function putServiceDeletion(
  transaction: Transaction,
  current: Stored<ServiceRecord>,
  nowMs: number,
): void {
  const { namespace, name, uid, clusterIp, spec } = current.value;
  const key = toServiceKeyId(namespace, name);
  transaction.require('service', key, current).delete('service', key);
  for (const { protocol, nodePort } of spec?.ports ?? [])
    if (nodePort !== 0) transaction.delete('nodeport', toNodePortId(protocol, nodePort));
  for (const id of spec === undefined ? [] : listExternalAddressIds(spec))
    transaction.delete('nodeport', id);
  if (clusterIp === '') return;
  const record = create(ServiceAddressRecordSchema, {
    serviceUid: uid,
    service: key,
    releasedAt: timestampFromMs(nowMs),
  });
  transaction.put('serviceip', clusterIp, record);
}
