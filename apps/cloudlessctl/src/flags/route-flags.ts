import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { Command } from 'commander';
import {
  RouteLimitsSchema,
  RouteRuleSchema,
  RouteSpecSchema,
  RouteTlsSchema,
  type RouteRule,
  type RouteSpec,
} from '@cloudless/api';
import { createUsageFailure } from '../call/failure.js';
import type { LocalInvocation } from '../command-tree.js';
import { getListOption, getTextOption } from '../commands/options.js';
import { parseDurationOption } from '../config/settings.js';
import { collectValue, parsePairs, parseWholeNumber } from './flag-values.js';

/** Fields of a route that flags set, with their paths for an update. */
export interface RoutePatch {
  readonly spec: RouteSpec;
  /** Paths below `spec` in the update mask. */
  readonly specPaths: readonly string[];
  /** An empty value removes a label. */
  readonly labels: Readonly<Record<string, string>>;
}

/** Adds the flags that set fields of a route. */
export function addRouteFlags(command: Command): Command {
  return command
    .option(
      '--host <hostname>',
      'host of the requests, such as shop.example.com or *.example.com (repeatable; default: every host)',
      collectValue,
    )
    .option('--service <name:port>', 'service that answers, with the name or number of a TCP port')
    .option('--path <prefix>', 'path prefix of the requests for --service (default: /)')
    .option(
      '--rule <prefix=name:port>',
      'path prefix with the service that answers, for a route with several services (repeatable)',
      collectValue,
    )
    .option(
      '--response-timeout <duration>',
      'time until the response begins, 1s to 1h (default: 60s)',
    )
    .option('--retries <number>', 'attempts after one that no endpoint received (default: 1)')
    .option(
      '--tls-certificate-file <node-path>',
      'absolute path, on the nodes, of the PEM file with the certificate and its intermediates',
    )
    .option(
      '--tls-key-file <node-path>',
      'absolute path, on the nodes, of the PEM file with the key',
    )
    .option(
      '--tls-certificate-secret <secret>',
      'secret in the namespace of the route with the keys tls.crt and tls.key, in place of both files; empty: no TLS',
    )
    .option('--redirect-to-https', 'answer requests without TLS with a redirect')
    .option('--no-redirect-to-https', 'answer requests without TLS')
    .option('--max-header-bytes <bytes>', 'largest headers of a request, 1024 to 65536')
    .option('--max-body-bytes <bytes>', 'largest body of a request; 0: no limit')
    .option(
      '--node-selector <key=value>',
      'label of the nodes that serve the route (repeatable; default: all nodes)',
      collectValue,
    )
    .option(
      '--label <key=value>',
      'label of the route, or key- to remove (repeatable)',
      collectValue,
    );
}

/**
 * Returns the fields that the flags of {@link addRouteFlags} set.
 * @throws {@link CliFailure} with exit code 2 for an invalid value.
 */
export function readRouteFlags(invocation: LocalInvocation): RoutePatch {
  const spec = create(RouteSpecSchema);
  const specPaths: string[] = [];
  const hosts = getListOption(invocation, 'host');
  if (hosts.length > 0) {
    spec.hosts = [...hosts];
    specPaths.push('hosts');
  }
  spec.rules = readRules(invocation);
  if (spec.rules.length > 0) specPaths.push('rules');
  const selector = getListOption(invocation, 'nodeSelector');
  if (selector.length > 0) {
    spec.nodeSelector = toRecord(selector);
    specPaths.push('node_selector');
  }
  readTls(invocation, spec, specPaths);
  readLimits(invocation, spec, specPaths);
  const labels = parsePairs('--label', getListOption(invocation, 'label'));
  return {
    ...{ spec, specPaths },
    labels: Object.fromEntries(labels.map(({ key, value = '' }) => [key, value])),
  };
}

function readRules(invocation: LocalInvocation): RouteRule[] {
  const service = getTextOption(invocation, 'service');
  const pathPrefix = getTextOption(invocation, 'path');
  const timeout = getTextOption(invocation, 'responseTimeout');
  const retries = getTextOption(invocation, 'retries');
  if (service === undefined && pathPrefix !== undefined)
    throw createUsageFailure('--path is the path prefix of --service: give both');
  const rules = [
    ...(service === undefined ? [] : [parseTarget('--service', service, pathPrefix ?? '')]),
    ...getListOption(invocation, 'rule').map(parseRule),
  ];
  if (rules.length === 0 && (timeout !== undefined || retries !== undefined))
    throw createUsageFailure(
      '--response-timeout and --retries belong to rules: give --service or --rule too',
    );
  for (const rule of rules) {
    if (timeout !== undefined)
      rule.timeout = durationFromMs(parseDurationOption('--response-timeout', timeout));
    if (retries !== undefined) rule.retries = parseWholeNumber('--retries', retries);
  }
  return rules;
}

/**
 * Parses `prefix=name:port`.
 * @throws {@link CliFailure} with exit code 2 for other text.
 */
function parseRule(text: string): RouteRule {
  const end = text.lastIndexOf('=');
  if (end >= 0) return parseTarget('--rule', text.slice(end + 1), text.slice(0, end));
  throw createUsageFailure(
    `--rule: expected prefix=name:port, such as /api=api:http, got ${JSON.stringify(text)}`,
  );
}

function parseTarget(flag: string, text: string, pathPrefix: string): RouteRule {
  const [, service = '', port = ''] = /^([^:]+):([^:]+)$/.exec(text) ?? [];
  if (service !== '') return create(RouteRuleSchema, { pathPrefix, service, port });
  throw createUsageFailure(
    `${flag}: expected a service with its port, such as web:80 or web:http, got ${JSON.stringify(text)}`,
  );
}

function readTls(invocation: LocalInvocation, spec: RouteSpec, paths: string[]): void {
  const certificateFile = getTextOption(invocation, 'tlsCertificateFile');
  const keyFile = getTextOption(invocation, 'tlsKeyFile');
  const certificateSecret = getTextOption(invocation, 'tlsCertificateSecret');
  const hasFiles = certificateFile !== undefined || keyFile !== undefined;
  if (certificateSecret !== undefined && hasFiles)
    throw createUsageFailure(
      '--tls-certificate-secret excludes --tls-certificate-file and --tls-key-file: give the secret or the files',
    );
  if ((certificateFile === undefined) !== (keyFile === undefined))
    throw createUsageFailure(
      '--tls-certificate-file and --tls-key-file belong together: give both',
    );
  if (certificateFile !== undefined && keyFile !== undefined) {
    // Both empty: no TLS any more.
    if (certificateFile !== '' || keyFile !== '')
      spec.tls = create(RouteTlsSchema, { certificateFile, keyFile });
    paths.push('tls');
  }
  if (certificateSecret !== undefined) {
    // Empty: no TLS any more.
    if (certificateSecret !== '') spec.tls = create(RouteTlsSchema, { certificateSecret });
    paths.push('tls');
  }
  const redirect = invocation.options['redirectToHttps'];
  // With `--no-`, the commander library has true as the default of neither flag.
  if (typeof redirect !== 'boolean') return;
  spec.redirectToHttps = redirect;
  paths.push('redirect_to_https');
}

function readLimits(invocation: LocalInvocation, spec: RouteSpec, paths: string[]): void {
  const header = getTextOption(invocation, 'maxHeaderBytes');
  const body = getTextOption(invocation, 'maxBodyBytes');
  if (header === undefined && body === undefined) return;
  spec.limits = create(RouteLimitsSchema);
  if (header !== undefined) {
    spec.limits.maxHeaderBytes = parseWholeNumber('--max-header-bytes', header);
    paths.push('limits.max_header_bytes');
  }
  if (body === undefined) return;
  spec.limits.maxBodyBytes = BigInt(parseWholeNumber('--max-body-bytes', body));
  paths.push('limits.max_body_bytes');
}

function toRecord(texts: readonly string[]): Record<string, string> {
  const pairs = parsePairs('--node-selector', texts);
  const removed = pairs.find(({ value }) => value === undefined);
  if (removed !== undefined)
    throw createUsageFailure(`--node-selector: expected key=value, got "${removed.key}-"`);
  return Object.fromEntries(pairs.map(({ key, value = '' }) => [key, value]));
}
