/** Domain of the services of the benchmark `dns`. */
export const BENCH_DOMAIN = 'cloudless.internal';

/** Number of services of the benchmark `dns`. */
const SERVICES = 5_000;

/** The services of the benchmark `dns`, in 50 namespaces. */
export function benchServices(): readonly {
  readonly namespace: string;
  readonly name: string;
  readonly dnsName: string;
  readonly address: string;
}[] {
  return Array.from({ length: SERVICES }, (_, index) => {
    const namespace = `team-${index % 50}`;
    const name = `service-${index}`;
    return {
      namespace,
      name,
      dnsName: `${name}.${namespace}.svc.${BENCH_DOMAIN}`,
      address: `10.96.${16 + (index >> 8)}.${index & 255}`,
    };
  });
}
