// The package reads decorators when it is loaded, so the import of reflect-metadata comes first.
import 'reflect-metadata';

export {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  Name,
  Pkcs10CertificateRequestGenerator,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509CertificateGenerator,
} from '@peculiar/x509';
export type { Extension, JsonGeneralNames, JsonName } from '@peculiar/x509';
