import { durationMs } from '@bufbuild/protobuf/wkt';
import { findRoutePort, type NetworkRouteEntry } from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import { toServiceKey, type NetworkView } from './network-model.js';

/** A rule of a {@link ServedRoute}. */
export interface ServedRule {
  /** Begins with "/"; ends with "/" only when it is "/". */
  readonly pathPrefix: string;
  readonly service: { readonly namespace: string; readonly name: string };
  /** Number of the TCP port of the service. 0: the service, or its port, does not exist. */
  readonly port: number;
  /** Longest time until the response begins, milliseconds. */
  readonly timeoutMs: number;
  readonly retries: number;
}

/** A version of a secret. A secret that is deleted and created again has another uid. */
export interface ServedSecretVersion {
  readonly secretUid: string;
  readonly version: number;
}

/** Where the certificate of a {@link ServedRoute} is. */
export type ServedTls =
  /** Absolute paths of files on the node. */
  | { readonly certificateFile: string; readonly keyFile: string }
  | {
      /** `<namespace>/<name>`. */
      readonly secret: string;
      /**
       * The newest version. Absent: the secret does not exist, or the coordinator is of a release
       * without certificates from secrets.
       */
      readonly version?: ServedSecretVersion;
    };

/** An HTTP route that a node serves, with all defaults. */
export interface ServedRoute {
  readonly namespace: string;
  readonly name: string;
  /** Empty: every host. */
  readonly hosts: readonly string[];
  readonly rules: readonly ServedRule[];
  /** Absent: the route is served without TLS. */
  readonly tls?: ServedTls;
  readonly redirectToHttps: boolean;
  readonly maxHeaderBytes: number;
  /** 0: no limit. */
  readonly maxBodyBytes: number;
}

/**
 * Returns the HTTP routes that a node serves, by `<namespace>/<name>`. They depend on the routes and,
 * for the numbers of their ports, on the services: derive them again when either changes.
 */
export function listServedRoutes(
  view: Pick<NetworkView, 'routes' | 'services'>,
  nodeId: string,
): ReadonlyMap<string, ServedRoute> {
  const served = new Map<string, ServedRoute>();
  for (const [key, entry] of view.routes) {
    const selects = Object.keys(entry.spec?.nodeSelector ?? {}).length > 0;
    if (!selects || entry.nodeIds.includes(nodeId)) served.set(key, toServedRoute(view, entry));
  }
  return served;
}

function toServedRoute(
  { services }: Pick<NetworkView, 'services'>,
  entry: NetworkRouteEntry,
): ServedRoute {
  const { namespace, name, spec } = entry;
  return {
    ...{ namespace, name, hosts: spec?.hosts ?? [] },
    rules: (spec?.rules ?? []).map(({ pathPrefix, service, port, timeout, retries = 0 }) => {
      const target = services.get(toServiceKey(namespace, service))?.spec;
      return {
        ...{ pathPrefix, retries, service: { namespace, name: service } },
        port: (target && findRoutePort(target, port)?.port) ?? 0,
        timeoutMs: timeout === undefined ? 0 : durationMs(timeout),
      };
    }),
    ...definedFields({ tls: toServedTls(entry) }),
    redirectToHttps: spec?.redirectToHttps ?? false,
    maxHeaderBytes: spec?.limits?.maxHeaderBytes ?? 0,
    maxBodyBytes: Number(spec?.limits?.maxBodyBytes ?? 0n),
  };
}

function toServedTls({ namespace, spec, certificate }: NetworkRouteEntry): ServedTls | undefined {
  if (spec?.tls === undefined) return undefined;
  const { certificateFile, keyFile, certificateSecret } = spec.tls;
  if (certificateSecret === '') return { certificateFile, keyFile };
  const secret = toServiceKey(namespace, certificateSecret);
  if (certificate === undefined) return { secret };
  const { secretUid, version } = certificate;
  return { secret, version: { secretUid, version } };
}
